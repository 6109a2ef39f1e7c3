"""The whole road once: run a job, serve its bundle, send real requests, print one table."""

import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from rich.console import Console

from cluster.process import owned_process, run_to_end
from cluster.serve_config import ServeOptions, ServingPlan, plan_serving, read_serve_file
from cluster.serving import serving
from cluster.serving_env import free_port
from cluster.summary import build_summary, render_summary
from cluster.traffic import TrafficFigures, send_texts
from pipeline.contract.errors import ConfigError
from pipeline.contract.folder import write_text_atomically
from pipeline.contract.shards import Shards, load_shards


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """What the demo runs."""

    job_config: Path
    serve_config: Path
    sets: tuple[str, ...]
    is_forced: bool
    num_requests: int


def run_demo(options: DemoOptions) -> None:
    """Prepare, train, evaluate, export, serve, ask, report; leave only the output folder.

    Raises:
        CommandError: a stage or the server failed.
        ConfigError: the serving configuration cannot be used.
    """
    console = Console(stderr=True, soft_wrap=True)
    # Ray and torch leave logs, sockets and caches in temporary folders. A short name, because
    # a socket's path may have 107 bytes in all.
    scratch = tempfile.mkdtemp(prefix="tl-")
    places = {"RAY_TMPDIR": scratch, "TMPDIR": scratch}
    environ = {**os.environ, **places, "RAY_USAGE_STATS_ENABLED": "0"}
    if "RAY_AUTH_MODE" not in environ:
        # Otherwise Ray saves a token in the home folder, which outlives the demo.
        environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(16))
    try:
        output_dir = _job_output(options, environ)
        run_to_end(_pipeline_command("run", options), environ=environ)
        console.print("[bold]serve[/bold]: starting Ray Serve", highlight=False)
        traffic = _serve_and_ask(options, output_dir)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    summary = build_summary(output_dir, asdict(traffic))
    write_text_atomically(output_dir / "summary.json", json.dumps(summary, indent=2) + "\n")
    render_summary(summary, Console())


def _pipeline_command(name: str, options: DemoOptions) -> list[str]:
    command = [sys.executable, "-m", "pipeline", name, "--config", str(options.job_config)]
    for item in options.sets:
        command += ["--set", item]
    if name == "run" and options.is_forced:
        command.append("--force")
    return command


def _job_output(options: DemoOptions, environ: dict[str, str]) -> Path:
    """Ask the job's own command where it writes; this package does not know the job schema."""
    with tempfile.NamedTemporaryFile(dir=environ["RAY_TMPDIR"]) as answer:
        command = [*_pipeline_command("config", options), "--json"]
        with owned_process(command, environ=environ, log=Path(answer.name)) as process:
            status = process.wait()
        text = Path(answer.name).read_text(encoding="utf-8")
    if status != 0:
        raise ConfigError(text.strip().removeprefix("error: "))
    return Path(json.loads(text)["output_dir"]["value"])


def _serve_and_ask(options: DemoOptions, output_dir: Path) -> TrafficFigures:
    plan = plan_demo_serving(options.serve_config, output_dir)
    texts, labels = _pick_texts(load_shards(output_dir / "shards"), options.num_requests)
    with serving(plan, environ=os.environ, log=output_dir / "serve.log") as server:
        return send_texts(server.plan.base_url, texts, labels=labels)


def plan_demo_serving(serve_config: Path, output_dir: Path) -> ServingPlan:
    """Return how to serve this job's bundle, on the file's port or a free one where it is taken.

    The configuration is left as ``serve.yaml`` beside the bundle.
    """
    http = read_serve_file(serve_config)["http_options"]
    port = free_port(str(http["host"]), preferred=int(http["port"]))
    plan = plan_serving(
        ServeOptions(config=serve_config, bundle=str(output_dir / "bundle"), port=port), os.environ
    )
    text = yaml.safe_dump(plan.config, sort_keys=False)
    write_text_atomically(output_dir / "serve.yaml", text)
    return plan


def _pick_texts(shards: Shards, num_requests: int) -> tuple[list[str], Sequence[str] | None]:
    """Return test texts spread over all lengths, and their labels for a sequence task."""
    test = shards.split("test")
    step = max(1, len(test) // num_requests)
    rows = list(range(0, len(test), step))[:num_requests]
    # Rows lie short to long in the shards; taken with a stride they come mixed, as in life.
    rows = [rows[index] for start in range(7) for index in range(start, len(rows), 7)]
    texts = [test.text(row) for row in rows]
    if shards.task != "sequence_classification":
        return texts, None
    return texts, [shards.labels[int(test.labels(row)[0])] for row in rows]
