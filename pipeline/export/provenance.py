"""Where a bundle comes from: its inputs' hashes, the versions and the commit that made it."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("textlane", "torch", "onnx", "onnxruntime", "tokenizers", "numpy")


def installed_versions() -> dict[str, str | None]:
    """Return package → version of what decides a bundle's bytes; None if not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree that was not installed
        return None


def source_commit(file: Path) -> str | None:
    """Return the git commit of the checkout that tracks a source file, None if there is none.

    A file that git does not track (installed below somebody else's checkout) has none.
    """
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    return _git(file.parent, "rev-parse", "HEAD")


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
