"""Ray and Ray Serve on this machine alone: the process that `textlane serve` starts and ends.

It is told where with its arguments, and tells how far it is in ``state.json`` of its folder.
"""

import argparse
import importlib
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cluster.loopback import NODE_ADDRESS, WORKER_HOOK
from cluster.serving_env import ray_folder
from cluster.serving_state import ServingState, write_state
from pipeline.contract.errors import ConfigError, TextlaneError
from pipeline.contract.interrupts import heed_stop_signals

CONFIG_NAME = "serve.yaml"
_POLL_S = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal comes; 0 stopped, 1 failed."""
    options = _parse(argv)
    parent = os.getppid()
    heed_stop_signals()
    try:
        _serve(options.folder, dashboard_port=options.dashboard_port)
    except TextlaneError as error:
        write_state(options.folder, ServingState(error=str(error), is_users=True))
        return 1
    except KeyboardInterrupt:
        return 0
    except BaseException as error:  # SystemExit too: Ray's commands end with it on failure.
        traceback.print_exc()
        write_state(options.folder, ServingState(error=f"{type(error).__name__}: {error}"))
        return 1
    finally:
        if os.getppid() != parent:
            # Who started us was killed and cannot clean up; our group is Ray and this process.
            shutil.rmtree(options.folder, ignore_errors=True)
            os.killpg(0, signal.SIGKILL)
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m cluster.local", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="ours, with serve.yaml in it")
    parser.add_argument("--dashboard-port", type=int, required=True)
    return parser.parse_args(argv)


def _serve(folder: Path, *, dashboard_port: int) -> None:
    path = folder / CONFIG_NAME
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    application = config["applications"][0]
    write_state(folder, ServingState(stage="checking bundle and settings"))
    _check_file(config)
    _check_application(application)
    write_state(folder, ServingState(stage="starting Ray"))
    try:
        _start_ray(folder, dashboard_port=dashboard_port)
        metrics_port = _metrics_port()
        write_state(folder, ServingState(stage="starting Ray Serve"))
        _deploy(path)
        name = str(application.get("name", "default"))
        while not _report(folder, name=name, metrics_port=metrics_port):
            time.sleep(_POLL_S)
        while True:
            time.sleep(3600.0)  # Until a signal; the loss of Ray's processes ends this one too.
    finally:
        _stop()


def _check_file(config: dict[str, Any]) -> None:
    """Check the file as Ray Serve will.

    Raises:
        ConfigError: a name is unknown or a value of the wrong type.
    """
    from ray.serve.schema import ServeDeploySchema

    try:
        ServeDeploySchema.model_validate(config)
    except ValidationError as error:
        mistake = error.errors(include_url=False)[0]
        raise ConfigError(
            mistake["msg"].removeprefix("Value error, "),
            place=f"the Ray Serve file: {'.'.join(str(part) for part in mistake['loc'])}",
            value=mistake["input"],
            remedy="Correct it there.",
        ) from None
    for place, name, known in _unknown_names(config):
        near = get_close_matches(name, known, n=1)
        raise ConfigError(
            "Ray Serve knows no setting of this name and would pass over it",
            place=f"the Ray Serve file: {place}",
            value=name,
            remedy=f"Did you mean {near[0]}?" if near else f"There are {', '.join(sorted(known))}.",
        )


def _unknown_names(config: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield place, name and the names that there are, of each setting that Ray has not."""
    from ray.serve import schema

    parts: list[tuple[str, dict[str, Any], Any]] = [
        ("the top", config, schema.ServeDeploySchema),
        ("http_options", config["http_options"], schema.HTTPOptionsSchema),
        ("grpc_options", config["grpc_options"], schema.gRPCOptionsSchema),
    ]
    for number, application in enumerate(config["applications"]):
        place = f"applications.{number}"
        parts.append((place, application, schema.ServeApplicationSchema))
        parts += [
            (f"{place}.deployments.{index}", deployment, schema.DeploymentSchema)
            for index, deployment in enumerate(application.get("deployments") or [])
        ]
    for place, given, model in parts:
        known = list(model.model_fields)
        yield from ((place, str(name), known) for name in given if name not in known)


def _check_application(application: dict[str, Any]) -> None:
    """Build the application as Ray Serve will, so that a mistake is told before Ray starts.

    A function ``check_deployments`` beside the builder is given what the file says of
    deployments, which Ray Serve hands to replicas only once they run.
    """
    sys.path.insert(0, os.getcwd())  # As `serve run` does.
    path, _, name = str(application["import_path"]).replace(":", ".").rpartition(".")
    module, arguments = importlib.import_module(path), application["args"]
    builder = getattr(module, name)
    if callable(builder) and arguments:
        builder(arguments)
    deployments = application.get("deployments")
    check: Callable[..., None] | None = getattr(module, "check_deployments", None)
    if check is not None and deployments:
        check(arguments, deployments)


def _start_ray(folder: Path, *, dashboard_port: int) -> None:
    import ray

    ray.init(
        address="local",
        namespace="serve",
        include_dashboard=True,
        dashboard_host=NODE_ADDRESS,
        dashboard_port=dashboard_port,
        runtime_env={"worker_process_setup_hook": WORKER_HOOK},
        _temp_dir=str(ray_folder(folder)),
    )
    heed_stop_signals()  # Ray puts its own handler of SIGTERM in the place of ours.


def _metrics_port() -> int:
    import ray

    nodes: Callable[[], list[dict[str, Any]]] = ray.nodes  # Ray leaves it untyped.
    return int(nodes()[0]["MetricsExportPort"])


def _stop() -> None:
    import ray
    from ray import serve

    shut_down_serve: Callable[[], None] = serve.shutdown  # Ray leaves it untyped.
    if ray.is_initialized():
        shut_down_serve()
        ray.shutdown()


def _deploy(path: Path) -> None:
    from ray.serve import scripts

    scripts.run.main(args=[str(path), "--non-blocking"], standalone_mode=False)


def _report(folder: Path, *, name: str, metrics_port: int) -> bool:
    """Write down how far the application is; return whether all its replicas run.

    Raises:
        RuntimeError: it did not start.
    """
    from ray import serve

    application = serve.status().applications.get(name)
    status = str(application.status.value) if application else "DEPLOYING"
    if application and status == "DEPLOY_FAILED":
        causes = [deployment.message for deployment in application.deployments.values()]
        raise RuntimeError("\n".join([application.message, *causes]))
    counts = []
    for key, deployment in application.deployments.items() if application else ():
        # Ray gives names where its types say an enum.
        states = {str(state): count for state, count in deployment.replica_states.items()}
        counts.append(f"{key} {states.get('RUNNING', 0)} of {sum(states.values())}")
    stage = f"starting replicas: {', '.join(counts)}" if counts else "building the application"
    is_running = status == "RUNNING"
    state = ServingState(stage=stage, is_running=is_running, metrics_port=metrics_port)
    write_state(folder, state)
    return is_running


if __name__ == "__main__":
    sys.exit(main())
