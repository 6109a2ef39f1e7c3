"""Every command of the README, as a person would type it, on a small job."""

import json
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from checkout import ROOT, copy_checkout, environment, heed_interrupts, home_beside, left_running
from submitted import drill

from cluster.listening import listening_ports

pytestmark = pytest.mark.ray

COMMANDS = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
COMMANDS = [line for block in COMMANDS for line in block.strip().splitlines()]
ACTIVATE = "source .venv/bin/activate"


def command_like(beginning):
    found = [line for line in COMMANDS if line.startswith(beginning)]
    assert len(found) == 1, f"the README has {len(found)} commands like {beginning!r}"
    return found[0]


@pytest.fixture(scope="module")
def scratch():
    # Sockets live below it and their paths may have 107 bytes only: pytest's are too long.
    folder = Path(tempfile.mkdtemp(prefix="tl-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(home_beside(folder), ignore_errors=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    return folder


def run(command, checkout, scratch, timeout_s=300):
    result = subprocess.run(
        ["bash", "-c", f"{ACTIVATE} && {command}"],
        cwd=checkout,
        env=environment(scratch),
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
    return result.stdout


@contextmanager
def running(command, checkout, scratch, url, up=(httpx.codes.OK,)):
    with (checkout / "background.log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", f"{ACTIVATE} && exec env {command}"],
            cwd=checkout,
            env=environment(scratch),
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=heed_interrupts,
        )
        try:
            wait_for(url, process, checkout, up)
            yield process.pid
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    assert left_running(scratch) == {}


def wait_for(url, process, checkout, up):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            if httpx.get(url, timeout=5).status_code in up:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, (checkout / "background.log").read_text()[-5000:]
        time.sleep(0.3)
    pytest.fail(f"{url} did not answer: {(checkout / 'background.log').read_text()[-5000:]}")


def need_port(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            pytest.skip(f"port {port} is taken by another program on this machine")


@pytest.fixture(scope="module")
def demo(checkout, scratch):
    return run(command_like("make demo"), checkout, scratch)


def test_make_demo_prints_one_table_and_leaves_only_outputs(demo, checkout, scratch):
    summary = json.loads((checkout / "outputs/demo_cpu/summary.json").read_text())

    for text in ("rows read / kept", "padding share", "TF-IDF", "ONNX INT8", "P50 / P99"):
        assert text in demo
    rows = summary["rows"]
    assert rows["read"] == 33530 == rows["kept"] + rows["rejected"] + rows["not_sampled"]
    assert Path(checkout, summary["report"]).is_file()
    assert summary["traffic"]["num_requests"] > 0
    assert left_running(scratch) == {}
    assert list(scratch.iterdir()) == []
    assert list(home_beside(scratch).glob(".ray*")) == []


@pytest.mark.drill
def test_a_second_demo_trains_nothing_again(demo, checkout, scratch):
    weights = {p: p.stat().st_mtime_ns for p in (checkout / "outputs").rglob("*.pt")}

    run(command_like("make demo"), checkout, scratch)

    assert weights
    assert {p: p.stat().st_mtime_ns for p in (checkout / "outputs").rglob("*.pt")} == weights


def test_predict_answers_each_text(demo, checkout, scratch):
    answers = run(command_like("textlane predict"), checkout, scratch)

    assert len(re.findall(r"negative|positive", answers)) >= 2


@pytest.mark.slow
def test_export_ranks_the_layers_by_what_int8_costs_them(checkout, scratch):
    run(command_like("textlane run"), checkout, scratch)  # What is finished is not done again.

    shown = run(command_like("textlane export"), checkout, scratch)

    assert "all together" in shown
    # The small job has one layer: query, key, value and output of attention, two after it.
    assert len(re.findall(r"^encoder\.layer\.\d", shown, flags=re.M)) == 6


def test_inspect_shows_the_rows_and_the_padding(demo, checkout, scratch):
    shown = run(command_like("textlane inspect"), checkout, scratch)

    lines = [line.split() for line in shown.splitlines()]
    assert ["read", "33,530", "100.0%"] in lines
    assert {"rows of the input", "buckets of the train rows", "longest rows"} <= set(
        shown.splitlines()
    )


SERVE_RUN = "RAY_SERVE_THROUGHPUT_OPTIMIZED=1"


@contextmanager
def served(command, checkout, scratch):
    """Serve by a command of the README and send the README's request."""
    request = shlex.split(command_like("curl"))
    url = next(word for word in request if word.startswith("http"))
    body = request[request.index("-d") + 1]

    with running(command_like(command), checkout, scratch, "http://127.0.0.1:8000/readyz"):
        if shutil.which("curl"):
            answer = json.loads(subprocess.run(request, capture_output=True, check=True).stdout)
        else:
            answer = httpx.post(url, json=json.loads(body)).json()
        page = httpx.get("http://127.0.0.1:8000/docs")
        model = httpx.get("http://127.0.0.1:8000/v1/model").json()
        assert answer["label"] in {"negative", "positive"}
        assert page.status_code == httpx.codes.OK
        assert "demo_cpu" in json.dumps(model)
        yield


def test_textlane_serve_answers_the_readmes_request_and_load_measures_it(demo, checkout, scratch):
    need_port(8000)

    with served("textlane serve", checkout, scratch):
        shown = run(command_like("textlane load"), checkout, scratch)

    assert "P99" in shown
    assert " + 0 failed + 0 unanswered" in shown
    assert "<svg" in (checkout / "outputs/load.html").read_text()


@pytest.mark.slow
def test_serve_run_answers_the_readmes_request(demo, checkout, scratch):
    for port in (8000, 8404, 9101):
        need_port(port)

    with served(SERVE_RUN, checkout, scratch):
        pass


@pytest.mark.slow
def test_the_token_job_runs_from_its_own_file(checkout, scratch):
    run(command_like("textlane run"), checkout, scratch)

    metrics = json.loads((checkout / "outputs/entities_cpu/report/metrics.json").read_text())
    assert metrics["task"] == "token_classification"


def test_verify_repeats_the_checks_and_tune_writes_what_serving_reads(demo, checkout, scratch):
    checks = run(command_like("textlane verify"), checkout, scratch)
    run(command_like("textlane tune"), checkout, scratch)
    answers = run(command_like("textlane predict"), checkout, scratch)

    tuning = json.loads((checkout / "outputs/demo_cpu/bundle.tuning.json").read_text())
    assert "batch shift" in checks
    assert tuning["choice"]["threads_per_replica"] in {1, 2}
    assert len(re.findall(r"negative|positive", answers)) >= 2


def test_settings_show_their_origin(checkout, scratch):
    lines = run(command_like("TEXTLANE_TRAIN__BASE_LR"), checkout, scratch).splitlines()

    origins = {line.split()[0]: line.split(maxsplit=2)[2] for line in lines}
    assert origins["train.base_lr"] == "environment TEXTLANE_TRAIN__BASE_LR"
    assert origins["train.epochs"] == "--set"


def told_runs(token):
    """Return the runs that the dashboard's API tells of."""
    headers = {"Authorization": f"Bearer {token}"}
    page = httpx.get("http://127.0.0.1:8265/api/train/v2/runs/v1", headers=headers, timeout=30)
    return page.raise_for_status().json()["train_runs"]


@pytest.mark.slow
def test_a_submitted_job_runs_on_a_cluster_and_goes_on_when_killed_with_its_disk(
    checkout, scratch, tmp_path
):
    need_port(8265)
    need_port(6379)
    # A virtual environment is a link here; a folder of another name stands for forgotten data.
    (checkout / "data").mkdir(exist_ok=True)
    (checkout / "data/large.bin").write_bytes(b"\0" * 1024)
    run(command_like("ray get-auth-token"), checkout, scratch)
    start = command_like("RAY_AUTH_MODE=token RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 ray start")

    # Ray asks for a token here, which its own commands know; being asked means it is up.
    up = (httpx.codes.OK, httpx.codes.UNAUTHORIZED)
    with running(start, checkout, scratch, "http://127.0.0.1:8265/api/version", up) as pid:
        listening = {port.address for port in listening_ports(pid)}
        output = run(command_like("RAY_AUTH_MODE=token ray job submit"), checkout, scratch)
        train_runs = told_runs(run(command_like("ray get-auth-token"), checkout, scratch).strip())
        uploads = [p for p in scratch.rglob("_ray_pkg_*") if p.is_dir() and p.name[9:].isalnum()]
        carried = {p.name for upload in uploads for p in upload.iterdir()}
        kept, resumed, stopped, said = drill(
            lambda command: run(command, checkout, scratch), tmp_path, scratch
        )

    assert listening == {"127.0.0.1"}
    assert "succeeded" in output
    assert "export" in output
    assert [one["status"] for one in train_runs] == ["FINISHED"]
    assert "pyproject.toml" in carried
    assert not carried & {".venv", "data"}
    assert resumed == kept > 0
    assert stopped > kept  # What it reached is stored as it is stopped.
    assert "fetched" in said


def test_every_readme_command_is_run_by_a_test_here():
    tested = (
        "make demo",
        ACTIVATE,
        "textlane predict",
        "textlane inspect",
        "textlane serve",
        "textlane load",
        SERVE_RUN,
        "curl",
        "textlane run",
        "textlane export",
        "textlane verify",
        "textlane tune",
        "TEXTLANE_TRAIN__BASE_LR",
        "ray get-auth-token",
        "RAY_AUTH_MODE=token RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 ray start",
        "RAY_AUTH_MODE=token ray job submit",
        "make check",  # What runs these tests; it is not run inside itself.
    )

    assert [line for line in COMMANDS if not line.startswith(tested)] == []
    assert "check:" in (ROOT / "Makefile").read_text()
