"""`textlane release`: what it sends, prints and returns."""

import io
import json
import threading
import time

import httpx
import pytest
import release_samples as samples
import uvicorn
from load_server import TinyServer, failed
from rich.console import Console

from pipeline.contract.errors import ServiceError
from serve_app.__main__ import main
from serve_app.release.admin_app import AdminApp
from serve_app.release.status import ReleaseHistory
from serve_app.release.status_table import build_status, one_line
from serve_app.release.watching import watch
from serve_app.release.wording import duration, figure


class Served:
    """An admin application on a free port, in a thread of this process."""

    def __init__(self, desk, **options):
        config = uvicorn.Config(
            AdminApp(desk, **options), host="127.0.0.1", port=0, log_level="error", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self):
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("TEXTLANE_RELEASE_URL", "TEXTLANE_RELEASE_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "160")


def release(*arguments):
    return main(["release", *map(str, arguments)])


def shown(status, *, width=160):
    console = Console(file=io.StringIO(), width=width)
    console.print(build_status(status))
    return console.file.getvalue()


@pytest.mark.slow
def test_start_sends_the_whole_path_and_the_plan(tmp_path, monkeypatch, capsys):
    (tmp_path / "v2").mkdir()
    plan = tmp_path / "plan.yaml"
    plan.write_text("settle_s: 5\nsteps: [{weight: 0.1, dwell_s: 60}]\n")
    monkeypatch.chdir(tmp_path)
    desk = samples.FakeDesk()

    with Served(desk) as url:
        code = release("start", "v2", "--plan", plan, "--url", url)

    ((action, bundle, sent),) = desk.asked
    assert (code, action, bundle) == (0, "start", str(tmp_path / "v2"))
    assert (sent["settle_s"], sent["steps"]) == (5.0, [{"weight": 0.1, "dwell_s": 60.0}])
    assert "starting" in capsys.readouterr().out


@pytest.mark.slow
def test_status_shows_weight_step_checks_and_disagreements(capsys):
    with Served(samples.FakeDesk(samples.under_way())) as url:
        code = release("status", "--url", url + "/release")

    text = capsys.readouterr().out
    assert code == 0
    for words in (
        "release running",
        "75 %",
        "25 %",
        samples.CANDIDATE.version,
        "step 2 of 4 at 25 %, at least 13 h 20 min more of 1 d 0 h; waits for accuracy",
        "p99 · long",
        "inconclusive",
        "measured 1.02 (limit 1.1)",
        "length 257–512",
        "drift: confidence",
    ):
        assert words in text


@pytest.mark.slow
def test_a_rollback_is_told_with_its_reason_and_ids(capsys):
    with Served(samples.FakeDesk(samples.rolled_back())) as url:
        release("status", "--url", url)

    text = capsys.readouterr().out
    assert "rolled back by a check" in text
    assert "1.245 against a limit of 1.1" in text.replace("\n", " ")
    assert samples.sample()[0].request_id in text


@pytest.mark.slow
@pytest.mark.parametrize("action", ["pause", "promote", "abort"])
def test_a_change_is_asked_for_and_shown(action, capsys):
    desk = samples.FakeDesk(samples.under_way())

    with Served(desk) as url:
        assert release(action, "--url", url, "--json") == 0

    assert desk.asked == [(action,)]
    assert json.loads(capsys.readouterr().out)["state"] != "running"


@pytest.mark.slow
def test_history_lists_releases_with_why_each_ended(capsys):
    with Served(samples.FakeDesk(past=samples.history())) as url:
        assert release("history", "--url", url) == 0
        text = capsys.readouterr().out
        assert release("history", "--url", url, "--json") == 0

    assert "rolled back" in text
    assert "promoted" in text
    assert "the newest was rolled back by a check" in text
    assert samples.sample()[0].request_id in text
    whole = ReleaseHistory.model_validate_json(capsys.readouterr().out)
    assert whole == samples.history()


@pytest.mark.slow
def test_no_history_is_said(capsys):
    with Served(samples.FakeDesk()) as url:
        assert release("history", "--url", url) == 0

    assert capsys.readouterr().out == "no release has ended yet\n"


@pytest.mark.slow
def test_a_refusal_is_one_line_and_status_2(capsys):
    with Served(samples.FakeDesk()) as url:
        assert release("abort", "--url", url) == 2

    error = capsys.readouterr().err
    assert error == "error: the release is none, not running. Look at its status.\n"


@pytest.mark.slow
def test_the_key_is_sent_from_option_file_or_environment(tmp_path, monkeypatch, capsys):
    (tmp_path / "key").write_text("long-secret\n")
    with Served(samples.FakeDesk(), api_keys=["long-secret"]) as url:
        assert release("status", "--url", url) == 2
        assert "TEXTLANE_RELEASE_KEY" in capsys.readouterr().err
        assert release("status", "--url", url, "--key", f"@{tmp_path / 'key'}") == 0
        monkeypatch.setenv("TEXTLANE_RELEASE_KEY", "long-secret")
        monkeypatch.setenv("TEXTLANE_RELEASE_URL", url)
        assert release("status") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["start", ""], "BUNDLE: must be 1 to 4096 printable"),
        (["start", "/" + "x" * 5000], "BUNDLE: must be 1 to 4096 printable"),
        (["start", "/a\x1b[31m"], "BUNDLE: must be 1 to 4096 printable"),
        (["start", "not/there"], "BUNDLE: there is no such folder here"),
        (["start", "/m", "--plan", "not_there.yaml"], "not_there.yaml: the configuration cannot"),
        (["status", "--url", ""], "URL: must begin with http:// or https://"),
        (["status", "--url", "ftp://x"], "URL: must begin with http:// or https://"),
        (["status", "--url", "http://x" * 1000], "URL: must be at most 2000"),
        (["status", "--url", "http://a b"], "URL: must be at most 2000"),
        (["status", "--url", "http://u:secret@x"], "URL: may hold no user name"),
        (["status", "--url", "http://x/?a=1"], "URL: must have no ?"),
        (["status", "--url", "http://x:99999"], "URL: Port out of range"),
        (["status", "--key", ""], "--key: must be 1 to 1000 printable"),
        (["status", "--key", "x" * 2000], "--key: must be 1 to 1000 printable"),
        (["status", "--key", "é"], "--key: must be 1 to 1000 printable"),
        (["status", "--key", "@/not/there"], "--key @/not/there: cannot be read"),
        (["status", "--watch", "--json"], "one goes without the other"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_option_is_named_before_anything_is_sent(arguments, message, capsys):
    assert release(*arguments) == 2

    error = capsys.readouterr().err
    assert message in error
    assert "secret" not in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("- a", "must hold a mapping"),
        ("settle: 5", "unknown setting"),
        ("settle_s: soon", "settle_s"),
        ("settle_s: 2026-12-01", "settle_s"),
        ("steps: []", "steps"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_bad_plan_is_refused_with_its_file(text, message, tmp_path, capsys):
    plan = tmp_path / "plan.yaml"
    plan.write_text(text)

    assert release("start", tmp_path, "--plan", plan) == 2

    error = capsys.readouterr().err
    assert str(plan) in error
    assert message in error


def test_a_misspelt_variable_is_refused_without_its_value(monkeypatch, capsys):
    monkeypatch.setenv("TEXTLANE_RELEASE_KEYS", "secret")

    assert release("status") == 2

    error = capsys.readouterr().err
    assert "environment TEXTLANE_RELEASE_KEYS: unknown setting" in error
    assert "secret" not in error


def test_no_desk_is_told_with_what_to_do(capsys):
    assert release("status", "--url", "http://127.0.0.1:9") == 2

    assert "no release desk answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (failed(404, "not_found", "Not Found"), "this is no release desk: Not Found"),
        ((0.0, 200, {"state": "?"}), "does not answer as a release desk of this version"),
        ((0.0, 502, b"<html>bad gateway"), "this is no release desk: it answers 502"),
        ((0.0, 500, {"error": "x"}), "this is no release desk: it answers 500"),
        (failed(503, "not_ready", "no state yet"), "error: no state yet"),
    ],
    ids=str,
)
def test_what_is_no_desk_or_cannot_answer_is_told(answer, message, capsys, monkeypatch):
    real = httpx.Client.request

    def with_text(self, method, url, **options):
        # The tiny server reads a body with a text.
        return real(self, "POST", url, **{**options, "json": {"text": ""}})

    monkeypatch.setattr(httpx.Client, "request", with_text)
    with TinyServer(lambda number, text: answer) as server:
        assert release("status", "--url", server.url) == 2

    assert message in capsys.readouterr().err


def test_hostile_texts_reach_the_terminal_as_escapes():
    text = shown(samples.hostile(), width=400)

    assert "\x1b[31m" not in text
    assert "\u202e" not in text
    assert "\\x1b[31m" in text
    assert "<script>" in text


def test_nothing_yet_says_how_to_start():
    text = shown(samples.nothing_yet())

    assert "no release yet" in text
    assert "textlane release start BUNDLE" in text


class Answers:
    """Says one status after the other; an exception is raised."""

    def __init__(self, *answers):
        self._answers = list(answers)

    def status(self):
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def watched(*answers, is_terminal=False):
    console = Console(file=io.StringIO(), width=200, force_terminal=is_terminal)
    waits = []
    code = watch(Answers(*answers), samples.under_way(), console=console, sleep=waits.append)
    return code, console.file.getvalue(), waits


def test_a_watch_ends_with_the_release_and_tells_each_change_once():
    same, over = samples.under_way(), samples.rolled_back()

    code, text, waits = watched(same, ServiceError("the desk is away"), over)

    lines = text.splitlines()
    assert code == 1
    assert lines[0] == one_line(same)
    assert lines[1] == "no status now: the desk is away"
    assert lines[2].startswith("rolled back: ")
    assert len(lines) == 4
    assert waits == [2.0] * 3


def test_a_watch_of_a_promotion_ends_well():
    code, _, _ = watched(samples.under_way(state="promoted", weight=1.0))

    assert code == 0


def test_a_watch_on_a_terminal_draws_the_tables():
    code, text, _ = watched(
        ServiceError("the desk is away"), samples.rolled_back(), is_terminal=True
    )

    assert code == 1
    assert "no status now: the desk is away" in text
    assert "rolled back" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (1e-05, "0.00001"),
        (0.00412345, "0.00412"),
        (1.0249, "1.02"),
        (-0.5, "-0.5"),
        (30000.0, "30,000"),
        (1234.56, "1,234.6"),
    ],
)
def test_figures_are_short_and_have_no_exponent(value, text):
    assert figure(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.6, "1 min 0 s"), (48_123, "13 h 22 min"), (90_000, "1 d 1 h"), (-5, "0 s")],
)
def test_spans_of_time_have_two_units(seconds, text):
    assert duration(seconds) == text
