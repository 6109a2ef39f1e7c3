"""What a serving install takes on disk, and that it serves without torch.

    python tests/perf/serving_install.py [BUNDLE]

Installs the checkout with the extra `serve` alone into a fresh environment, with the pinned
versions. With a bundle it also answers one text there.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ABSENT = ("torch", "onnx", "transformers", "matplotlib")
_MIB = 2**20
_SHOWN = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=lambda text: Path(text).resolve(), nargs="?")
    options = parser.parse_args()
    # Neither the caller's packages nor its folder may help.
    os.environ.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory(prefix="serving-install-") as scratch:
        folder = Path(scratch)
        python = install(folder)
        check(python, options.bundle)
        show_sizes(next((folder / "env" / "lib").glob("python*/site-packages")))


def install(folder: Path) -> Path:
    """Return the Python of a fresh environment with what `textlane[serve]` needs."""
    # Of a copy, so that no build folder is left in the checkout.
    source = folder / "source"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().rstrip("\0").split("\0"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
    python = folder / "env" / "bin" / "python"
    command = [python, "-m", "pip", "install", "-q", "-c", "constraints.txt", ".[serve]"]
    subprocess.run(command, cwd=source, check=True)
    return python


def check(python: Path, bundle: Path | None) -> None:
    """Import all that serving needs, start its command, and answer a text."""
    code = "import importlib.util as u, serve_app.app, serve_app.ingress, cluster.__main__; "
    code += f"print([name for name in {_ABSENT!r} if u.find_spec(name)])"
    done = subprocess.run([python, "-c", code], cwd="/", stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("serving cannot be imported")
    print(f"of {', '.join(_ABSENT)} are installed: {done.stdout.strip()}")
    textlane = python.with_name("textlane")
    subprocess.run([textlane, "serve", "--help"], cwd="/", capture_output=True, check=True)
    if bundle is not None:
        command = [textlane, "predict", "--bundle", str(bundle), "A film to see twice."]
        subprocess.run(command, cwd="/", check=True)


def show_sizes(packages: Path) -> None:
    """Print the size of all packages, and the largest."""
    sizes = {path.name: size_of(path) for path in packages.iterdir()}
    print(f"all packages: {sum(sizes.values()) / _MIB:.0f} MiB")
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:_SHOWN]:
        print(f"  {name}: {sizes[name] / _MIB:.0f}")


def size_of(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())


if __name__ == "__main__":
    main()
