"""`textlane doctor` as a command: what it takes and refuses, and what if it cannot look."""

import json

import pytest
from bundles import write_tiny_bundle
from doctor_site import METRICS

from cluster.__main__ import main
from cluster.doctor import samples, scraping


def doctor(site, *options):
    place = ["--url", site.url, "--metrics", f"{site.url}/metrics"]
    return main(["doctor", *place, "--seconds", "1", *options])


def test_a_healthy_service_is_told_with_what_was_looked_at(site, capsys):
    assert doctor(site) == 0

    said = capsys.readouterr().out
    assert "9 requests (9 ok)" in said
    assert "healthy: no known symptom" in said


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("part", ["drop_s", "head_drop_s"])
def test_a_page_that_comes_in_drops_is_given_up(site, part, monkeypatch, capsys):
    monkeypatch.setattr(scraping, "_TIMEOUT_S", 0.1)
    site.pages["/metrics"] = (200, b"#" * 100)
    setattr(site, part, 0.02)

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
