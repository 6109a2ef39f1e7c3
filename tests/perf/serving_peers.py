"""The contestants of the serving contest: how each is started, from which environment."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PEERS = Path(__file__).with_name("peers")
BIN = Path(sys.executable).parent


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One way to serve the bundle."""

    command: tuple[str, ...]
    """``{port}`` and ``{bundle}`` stand for their values."""
    environ: Mapping[str, str] = field(default_factory=dict)
    requirements: str | None = None
    """File of packages that must not meet ours."""


OURS = ("textlane", "serve", "--bundle", "{bundle}", "--port", "{port}")
ONE_TEXT, LARGE, BY_GRPC = "textlane, one text a run", "textlane, full batches", "textlane, gRPC"
ONE_RUN, UVLOOP = "textlane, one run at once", "textlane, uvloop"
_RAY_DOCS = ("python", str(PEERS / "run_ray_docs.py"), "{port}")
_FAST_RAY = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_ENABLE_HA_PROXY": "1"}
PEERS_BY_NAME = {
    "textlane": Peer(command=OURS),
    ONE_TEXT: Peer(
        command=(*OURS, "--set", "max_batch_requests=1", "--set", "batch_wait_timeout_ms=0")
    ),
    LARGE: Peer(command=(*OURS, "--set", "max_batch_tokens=2048", "--set", "run_cost_tokens=400")),
    ONE_RUN: Peer(command=(*OURS, "--set", "short_concurrent_runs=1")),
    UVLOOP: Peer(command=OURS, environ={"RAY_USE_UVLOOP": "1"}),
    BY_GRPC: Peer(command=(*OURS, "--grpc-port", "0")),
    "FastAPI": Peer(
        command=("uvicorn", "fastapi_batcher:app", "--port", "{port}", "--log-level", "warning")
    ),
    "LitServe": Peer(
        command=("python", str(PEERS / "litserve_batcher.py"), "{port}"),
        requirements="requirements-litserve.txt",
    ),
    "BentoML": Peer(
        command=(
            "bentoml",
            "serve",
            "bentoml_batcher:Scorer",
            "--port",
            "{port}",
            "--host",
            "127.0.0.1",
        ),
        environ={"BENTOML_DO_NOT_TRACK": "True"},
        requirements="requirements-bentoml.txt",
    ),
    "Ray Serve, docs": Peer(command=_RAY_DOCS),
    "Ray Serve, throughput settings": Peer(command=_RAY_DOCS, environ=_FAST_RAY),
}
CONTESTANTS = [name for name in PEERS_BY_NAME if not name.startswith("textlane,")]
"""Those of the contest unless others are asked for: no second setting of ours."""


def bin_folder(peer: Peer, envs: Path) -> Path:
    """Return the folder of a peer's programs, its environment made if it is not there."""
    if peer.requirements is None:
        return BIN
    folder = envs / peer.requirements.removesuffix(".txt")
    if not (folder / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        packages = ["-q", "-r", str(PEERS / peer.requirements)]
        subprocess.run([folder / "bin" / "python", "-m", "pip", "install", *packages], check=True)
        (folder / "done").touch()
    return folder / "bin"


def environ_of(
    peer: Peer, *, bundle: Path, model: str, threads: int, programs: Path
) -> dict[str, str]:
    """Return the variables that a peer starts with."""
    return {
        **os.environ,
        **peer.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{PEERS}:{ROOT}",
        "BUNDLE": str(bundle),
        "MODEL": model,
        "THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
