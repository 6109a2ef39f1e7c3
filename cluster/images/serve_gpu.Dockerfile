# Serves on GPUs: as serve_cpu, with onnxruntime-gpu and the CUDA libraries that come with it.
#   docker build -f cluster/images/serve_gpu.Dockerfile -t textlane-serve-gpu:0.1.0 .
# Python must be that of the head's image to the minor version: hence no image of NVIDIA's below.

FROM python:3.11-slim-bookworm AS pins
COPY pyproject.toml /tmp/
RUN python -c "import pathlib, tomllib; \
    p = tomllib.loads(pathlib.Path('/tmp/pyproject.toml').read_text())['project']; \
    e = p['optional-dependencies']; cpu = [r for r in e['serve'] if not r.startswith('onnxruntime==')]; \
    gpu = [r.replace('onnxruntime-gpu', 'onnxruntime-gpu[cuda,cudnn]') for r in e['gpu']]; \
    print(*p['dependencies'], *cpu, *gpu, sep='\n')" > /requirements.txt

FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 openssh-client rsync wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home textlane
COPY constraints.txt /opt/constraints.txt
COPY --from=pins /requirements.txt /opt/requirements.txt
RUN pip install --no-cache-dir -r /opt/requirements.txt -c /opt/constraints.txt \
    && find /usr/local/lib/python3.11/site-packages/nvidia -type d -name lib > /etc/ld.so.conf.d/nvidia.conf \
    && ldconfig
# As cluster/ray_settings.env has them; a test compares.
ENV RAY_USAGE_STATS_ENABLED="0" \
    RAY_AUTH_MODE="token" \
    RAY_SERVE_THROUGHPUT_OPTIMIZED="1" \
    RAY_SERVE_ENABLE_HA_PROXY="1" \
    RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S="2" \
    RAY_SERVE_HAPROXY_RETRY_ON="conn-failure empty-response" \
    RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S="1" \
    RAY_USE_UVLOOP="0" \
    RAY_SERVE_GRPC_MAX_MESSAGE_SIZE="16777216"
ENV PYTHONUNBUFFERED="1"
COPY pyproject.toml README.md LICENSE /opt/textlane/
COPY pipeline /opt/textlane/pipeline
COPY cluster /opt/textlane/cluster
COPY serve_app /opt/textlane/serve_app
# The command `textlane`.
RUN pip install --no-cache-dir --no-deps -e /opt/textlane
USER 1000
WORKDIR /home/textlane
EXPOSE 8000
CMD ["python", "-m", "cluster", "serve", "--host", "0.0.0.0", "--bundle", "/shared/bundle", \
     "--set", "device=cuda", "--set", "lane_num_gpus=0.5"]
