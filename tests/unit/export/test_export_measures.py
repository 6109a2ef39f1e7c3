import subprocess
from pathlib import Path

from pipeline.export.provenance import source_commit


def test_the_commit_is_that_of_the_checkout_that_tracks_the_file(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    (tmp_path / "tracked.py").write_text("")
    (tmp_path / "stray.py").write_text("")
    git("init", "-q")
    git("add", "tracked.py")
    git("commit", "-q", "-m", "first")

    assert source_commit(tmp_path / "tracked.py") == git("rev-parse", "HEAD")
    assert source_commit(tmp_path / "stray.py") is None


def test_there_is_no_commit_outside_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("")

    assert source_commit(tmp_path / "file.py") is None
