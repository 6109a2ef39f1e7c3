"""`textlane doctor` as a command: what it takes and refuses, and what if it cannot look."""

import json
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from bundles import write_tiny_bundle

from cluster.__main__ import main
from cluster.doctor import examination, samples, scraping
from cluster.doctor.discovery import (
    DISCOVERY_NAME,
    find_discovery_files,
    find_service_url,
    read_targets,
)
from cluster.doctor.scraping import Scraper
from pipeline.contract.errors import CommandError, MissingFileError

METRICS = (
    'ray_textlane_requests_total{path="/v1/predict",outcome="ok",lane="short"} 9\n'
    'ray_textlane_setting{setting="haproxy",lane="none"} 1\n'
    'ray_other{SessionName="session_7"} 1\n'
)
MODEL = {"version": "tiny-1/model.onnx", "quality": {"accuracy": {"model.onnx": 0.9}}}


class Pages(BaseHTTPRequestHandler):
    def do_GET(self):
        if "X-API-Key" in self.headers:
            self.server.keys.append(self.headers["X-API-Key"])
        status, text = self.server.pages.get(self.path, (404, ""))
        body = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        step = len(body) if self.server.drop_s == 0 else 1
        for place in range(0, len(body), step or 1):
            time.sleep(self.server.drop_s)
            try:
                self.wfile.write(body[place : place + step])
            except OSError:
                return  # The client has given up.

    def log_message(self, *_arguments):
        """Keep the test's output clean."""


@pytest.fixture
def site(monkeypatch):
    """A service that is ready, with its metrics; its pages may be replaced.

    Nobody waits between two looks.
    """
    monkeypatch.setattr(examination, "Scraper", partial(Scraper, sleep=lambda _seconds: None))
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        server.keys = []
        server.drop_s = 0
        server.pages = {
            "/metrics": (200, METRICS),
            "/readyz": (200, "{}"),
            "/v1/model": (200, json.dumps(MODEL)),
        }
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def doctor(site, *options):
    place = ["--url", site.url, "--metrics", f"{site.url}/metrics"]
    return main(["doctor", *place, "--seconds", "1", *options])


def test_a_healthy_service_is_told_with_what_was_looked_at(site, capsys):
    assert doctor(site) == 0

    said = capsys.readouterr().out
    assert "9 requests (9 ok)" in said
    assert "healthy: no known symptom" in said


@pytest.mark.parametrize("answer", [(503, '{"error": "starting"}'), (404, "")])
def test_not_ready_is_named_with_what_the_service_said_until_it_is(site, answer, capsys):
    site.pages["/readyz"] = answer

    assert doctor(site, "--json") == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    site.pages["/readyz"] = (200, "{}")

    assert finding["symptom"] == "not_ready"
    assert finding["figures"]["answer"].startswith(str(answer[0]))
    assert doctor(site) == 0


def test_the_key_may_be_read_from_a_file_and_is_sent(site, tmp_path):
    (tmp_path / "key").write_text("a-long-random-key\n")

    assert doctor(site, "--api-key", f"@{tmp_path / 'key'}") == 0

    assert site.keys == ["a-long-random-key"]


def test_a_service_without_model_page_or_settings_is_judged_with_notes(site, capsys):
    site.pages["/v1/model"] = (401, "no")
    site.pages["/metrics"] = (200, METRICS.splitlines()[0] + "\n")

    assert doctor(site) == 0

    said = capsys.readouterr().out
    assert "quality was not looked at" in said
    assert "told no settings" in said


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ((200, ""), "textlane does not serve"),
        ((200, "<html>not metrics</html>"), "textlane does not serve"),
        ((200, "ray_textlane_rows_total{"), "not metrics in Prometheus' text format"),
        ((200, b"ray_textlane_\xff 1"), "no metrics could be read"),
        ((500, "no"), "no metrics could be read"),
    ],
)
def test_metrics_that_cannot_be_used_end_with_2_and_one_sentence(site, page, message, capsys):
    site.pages["/metrics"] = page

    assert doctor(site) == 2

    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "model",
    ["[" * 200_000, '{"version": "a/b", "quality": {"accuracy": {"model.onnx": NaN}}}', "é"],
)
def test_json_stays_json_whatever_the_service_says(site, model, capsys):
    site.pages["/v1/model"] = (200, model)

    assert doctor(site, "--json") == 0

    def refuse(constant):
        raise AssertionError(constant)

    assert json.loads(capsys.readouterr().out, parse_constant=refuse)["findings"] == []


def test_what_would_steer_a_terminal_is_escaped(site, capsys):
    site.pages["/readyz"] = (503, "\x1b[31m\nhealthy")

    assert doctor(site) == 1
    assert "503: \\x1b[31m\\nhealthy" in capsys.readouterr().out


def test_a_page_that_comes_in_drops_is_given_up(site, monkeypatch, capsys):
    monkeypatch.setattr(scraping, "_TIMEOUT_S", 0.1)
    site.pages["/metrics"] = (200, b"#" * 100)
    site.drop_s = 0.02

    assert doctor(site) == 2
    assert "no end within 0.1 s" in capsys.readouterr().err


def test_answers_without_end_are_no_answers(site, monkeypatch, capsys):
    monkeypatch.setattr(scraping, "_MOST_ANSWER_BYTES", 20)
    site.pages["/readyz"] = site.pages["/v1/model"] = (200, " " * 100)

    assert doctor(site) == 1

    said = capsys.readouterr().out
    assert "a page of over 20 bytes" in said
    assert "quality was not looked at" in said


def test_more_samples_than_any_service_has_are_refused(site, monkeypatch, capsys):
    monkeypatch.setattr(samples, "_MOST_SAMPLES", 1)

    assert doctor(site) == 2
    assert "over 1 samples of serving" in capsys.readouterr().err


def test_an_endless_page_is_given_up(site, monkeypatch, capsys):
    monkeypatch.setattr(scraping, "_MOST_BYTES", 20)

    assert doctor(site) == 2
    assert "a page of over 20 bytes" in capsys.readouterr().err


def test_nothing_that_listens_ends_with_2(capsys):
    assert main(["doctor", "--metrics", "http://127.0.0.1:9/metrics", "--seconds", "1"]) == 2
    assert "no metrics could be read: http://127.0.0.1:9/metrics" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--seconds", "0"],
        ["--seconds", "nan"],
        ["--seconds", "inf"],
        ["--seconds", "-3"],
        ["--seconds", "9" * 400],
        ["--seconds", ""],
        ["--seconds", "ten"],
        ["--url", ""],
        ["--url", "127.0.0.1:8000"],
        ["--url", "ftp://host"],
        ["--url", "http://"],
        ["--url", "http://h:99999"],
        ["--url", "http://a b"],
        ["--url", "http://h\n"],
        ["--url", "http://[::1"],
        ["--url", "http://" + "h" * 5000],
        ["--metrics", "\0"],
        ["--discovery", ""],
        ["--discovery", "a\0b"],
        ["--api-key", ""],
        ["--api-key", "clé-secrète"],
        ["--api-key", "a\nb"],
        ["--api-key", "k" * 5000],
        ["--api-key", "@/no/such/file"],
        ["--api-key", "@"],
        ["--api-key", "@/dev/zero"],
        ["--api-key", "@/tmp"],
        ["--checkpoint", "x" * 5000],
        ["--checkpoint", "a\x1b[31m"],
        ["--bundle", "x" * 5000],
        ["--discovery", "x" * 5000],
        ["--bundle", " "],
        ["--checkpoint", "\0"],
        ["extra"],
        ["--unknown"],
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_looked_at(options, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *options])

    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "error: " in said
    assert len(said) < 1500


def test_help_teaches_with_examples_and_exit_statuses(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--help"])

    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "textlane doctor --checkpoint outputs/demo_cpu/checkpoint" in said
    assert "Exit status: 0 healthy, 1 a symptom is present, 2 it could not look" in said


@pytest.mark.parametrize("name", ["missing", "é" * 200, "x" * 300])
def test_a_bundle_that_is_not_there_ends_with_2(tmp_path, name, capsys):
    assert main(["doctor", "--bundle", str(tmp_path / name)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_bundle_alone_is_judged_without_a_service(tmp_path, capsys):
    folder = write_tiny_bundle(tmp_path / "bundle").folder

    assert main(["doctor", "--bundle", str(folder)]) == 0
    assert "quality of model.onnx" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content", ["", "[", "3", "null", '[{"targets": 3}]', '[{"no": []}]', "[[]]", "\x00"]
)
def test_a_discovery_file_that_is_none_is_refused(tmp_path, content, capsys):
    path = tmp_path / DISCOVERY_NAME
    path.write_text(content)

    assert main(["doctor", "--discovery", str(path)]) == 2

    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "Traceback" not in said


def test_targets_and_service_are_found_through_rays_file(tmp_path):
    session = tmp_path / "tl-abc" / "r" / "session_7"
    session.mkdir(parents=True)
    (session / DISCOVERY_NAME).write_text('[{"labels": {}, "targets": ["127.0.0.1:1", "h:2"]}]')
    (session.parent / DISCOVERY_NAME).symlink_to(session / DISCOVERY_NAME)
    (tmp_path / "tl-abc" / "serve.yaml").write_text("http_options: {host: 0.0.0.0, port: 8123}")

    (found,) = find_discovery_files([tmp_path])

    assert found == session / DISCOVERY_NAME
    assert read_targets(found) == ["http://127.0.0.1:1/metrics", "http://h:2/metrics"]
    assert find_service_url(found) == "http://127.0.0.1:8123"
    assert find_service_url(session.parent / DISCOVERY_NAME) == "http://127.0.0.1:8123"
    with pytest.raises(MissingFileError, match="--metrics"):
        read_targets(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["", "[", "http_options: 3", "http_options: {host: h, port: x}"])
def test_an_unreadable_configuration_beside_it_means_rays_default_address(tmp_path, text):
    (tmp_path / "serve.yaml").write_text(text)

    assert find_service_url(tmp_path / "r" / DISCOVERY_NAME) == "http://127.0.0.1:8000"
    assert find_service_url(None) == "http://127.0.0.1:8000"


def write_session(tmp_path, name, site):
    session = tmp_path / f"tl-{name}" / "r" / name
    session.mkdir(parents=True)
    target = site.url.removeprefix("http://")
    (session / DISCOVERY_NAME).write_text(json.dumps([{"targets": [target]}]))
    return session / DISCOVERY_NAME


def test_the_living_ray_is_told_from_dead_ones_that_had_the_same_port(tmp_path, site, monkeypatch):
    dead, living = (write_session(tmp_path, name, site) for name in ("session_6", "session_7"))
    with httpx.Client(trust_env=False) as client:
        scraper = Scraper(client)

        monkeypatch.setattr(examination, "find_discovery_files", lambda: [dead, living])
        assert examination._find_living(scraper) == living

        monkeypatch.setattr(examination, "find_discovery_files", lambda: [dead])
        with pytest.raises(CommandError, match="no Ray runs on this machine"):
            examination._find_living(scraper)

        monkeypatch.setattr(examination, "find_discovery_files", lambda: [living, living])
        with pytest.raises(CommandError, match=r"2 Rays run .*--discovery"):
            examination._find_living(scraper)


def test_scrapes_are_spread_over_the_seconds_and_the_last_is_at_their_end(site):
    now, waits = [0.0], []

    def sleep(seconds):
        waits.append(seconds)
        now[0] += seconds

    with httpx.Client(trust_env=False) as client:
        scraper = Scraper(client, clock=lambda: now[0], sleep=sleep)
        scrapes = scraper.watch([f"{site.url}/metrics", "http://127.0.0.1:9/"], seconds=16.0)

    assert [scrape.time_s for scrape in scrapes] == [2.0 * number for number in range(9)]
    assert sum(waits) == 16.0
    assert all(len(scrape.samples) == 2 for scrape in scrapes)
