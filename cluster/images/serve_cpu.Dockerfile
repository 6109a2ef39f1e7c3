# Serves on CPUs; also the head of a serving cluster. No torch. Build from the checkout's root:
#   docker build -f cluster/images/serve_cpu.Dockerfile -t textlane-serve-cpu:0.1.0 .
# Layers from what changes once a year to what changes daily: system, Python packages, our code.

FROM python:3.11-slim-bookworm AS pins
# A stage of its own: pyproject.toml changes more often than the requirements in it, and only what
# comes out here decides whether the packages are installed anew.
COPY pyproject.toml /tmp/
RUN python -c "import pathlib, tomllib; \
    p = tomllib.loads(pathlib.Path('/tmp/pyproject.toml').read_text())['project']; \
    print(*p['dependencies'], *p['optional-dependencies']['serve'], sep='\n')" > /requirements.txt

FROM python:3.11-slim-bookworm
# wget: KubeRay's own probes call it where a manifest has none. ssh and rsync: Ray's launcher copies into containers
# with the second, and the head's autoscaler starts machines by both.
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 openssh-client rsync wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home textlane
COPY constraints.txt /opt/constraints.txt
COPY --from=pins /requirements.txt /opt/requirements.txt
RUN pip install --no-cache-dir -r /opt/requirements.txt -c /opt/constraints.txt
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
# One machine, without a cluster; on a cluster the manifests give `ray start`.
CMD ["python", "-m", "cluster", "serve", "--host", "0.0.0.0", "--bundle", "/shared/bundle"]
