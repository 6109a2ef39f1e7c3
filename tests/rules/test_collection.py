"""Every test file can be read with the extras that `make test` installs."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COLLECT_WITHOUT = """
import sys
import pytest

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests/perf"]))
"""


@pytest.mark.slow
def test_the_benchmarks_are_collected_without_the_packages_of_the_extra_bench():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    absent = {pin.partition("==")[0] for pin in project["optional-dependencies"]["bench"]}

    done = subprocess.run(
        [sys.executable, "-c", COLLECT_WITHOUT.format(absent=absent)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
