"""Where the metrics and the service are: Ray's service discovery file, and what lies beside it."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from cluster.listening import join_address
from pipeline.contract.errors import CommandError, MissingFileError
from pipeline.contract.folder import read_json

DISCOVERY_NAME = "prom_metrics_service_discovery.json"
_DEFAULT_URL = "http://127.0.0.1:8000"
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def find_discovery_files(roots: Sequence[Path] | None = None) -> list[Path]:
    """Return the discovery files of Rays that run or ran on this machine, newest first.

    Args:
        roots: where to look; None: the folder for temporary files, and ``/tmp``.
    """
    tops = {Path(tempfile.gettempdir()), Path("/tmp")} if roots is None else set(roots)
    found = {
        path.resolve()
        for top in tops
        for pattern in (f"tl-*/r/{DISCOVERY_NAME}", f"ray/{DISCOVERY_NAME}")
        for path in top.glob(pattern)
    }
    return sorted(found, key=_written_s, reverse=True)


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0  # It went while we looked.


def read_targets(path: Path) -> list[str]:
    """Return the URLs of the metrics that a discovery file names.

    Raises:
        MissingFileError: there is no such file.
        CommandError: it is something else.
    """
    if not path.is_file():
        raise MissingFileError(
            "Ray's service discovery file is not here",
            place=str(path),
            remedy="Leave --discovery out, or give --metrics with the URL that `textlane serve` "
            "printed.",
        )
    content = read_json(path)
    try:
        targets = [str(target) for group in content for target in group["targets"]]
    except (TypeError, KeyError):
        raise CommandError(
            'not a service discovery file: it must be a list of {"targets": ["host:port"]}',
            place=str(path),
            value=json.dumps(content),
        ) from None
    return [f"http://{target}/metrics" for target in targets]


def find_service_url(discovery: Path | None) -> str:
    """Return where the service of a discovery file answers, Ray Serve's default if unknown.

    `textlane serve` leaves the configuration that it serves beside the folder of its Ray.
    """
    # The file is a link into the folder of Ray's session, which is one deeper.
    folders = (
        []
        if discovery is None
        else [
            *discovery.absolute().parents[1:2],
            *discovery.resolve().parents[2:3],
        ]
    )
    beside = next((f / "serve.yaml" for f in folders if (f / "serve.yaml").is_file()), None)
    if beside is None:
        return _DEFAULT_URL
    try:
        http = yaml.safe_load(beside.read_text(encoding="utf-8"))["http_options"]
        host, port = str(http["host"]), int(http["port"])
    except (yaml.YAMLError, OSError, TypeError, KeyError, ValueError):
        return _DEFAULT_URL
    return f"http://{join_address(_EVERYWHERE.get(host, host), port)}"
