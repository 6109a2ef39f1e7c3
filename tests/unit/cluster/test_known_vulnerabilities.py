"""Pins are looked up in one request, and what could not be checked never looks clean."""

import json
import re
from pathlib import Path

import httpx
import pytest

from cluster import known_vulnerabilities
from cluster.known_vulnerabilities import Finding, find_vulnerabilities, main, read_pins
from pipeline.contract.errors import CommandError, ConfigError

ROOT = Path(__file__).parents[3]
PINS = [("good", "1.0"), ("bad", "2.0")]
ADVISORY = {"id": "PYSEC-2024-1", "modified": "2024-01-01T00:00:00Z"}


def osv(answer, *, status=200, seen=None):
    def handle(request):
        if seen is not None:
            seen.append((str(request.url), json.loads(request.content)))
        return httpx.Response(status, json=answer)

    return httpx.MockTransport(handle)


def unreachable(request):
    raise httpx.ConnectError("Name or service not known")


def test_every_pin_of_ours_is_read():
    pins = read_pins(ROOT / "constraints.txt")

    assert ("ray", "2.60.0") in pins
    assert len(pins) > 100


def test_the_pins_of_every_extra_and_of_the_build_are_read():
    pins = read_pins(ROOT / "pyproject.toml")

    assert {"setuptools", "numpy", "onnxruntime-gpu", "nvidia-ml-py", "ray"} <= {n for n, _ in pins}
    assert ("ray", "2.60.0") in pins


def test_make_looks_up_everything_that_it_installs():
    makefile = (ROOT / "Makefile").read_text()
    (line,) = re.findall(r"-m cluster.known_vulnerabilities (.*)", makefile)
    pinned = re.findall(r"^(\w+) := \S+==", makefile, flags=re.M)

    assert line.split() == ["constraints.txt", "pyproject.toml", *(f"$({n})" for n in pinned)]
    # Nothing is installed by a pin that is written elsewhere.
    assert not re.findall(r"install .*==", makefile)


def test_all_pins_go_in_one_request_and_findings_name_package_and_page():
    seen = []

    found = find_vulnerabilities(
        PINS, transport=osv({"results": [{}, {"vulns": [ADVISORY]}]}, seen=seen)
    )

    ((url, body),) = seen
    assert url == "https://api.osv.dev/v1/querybatch"
    assert [q["package"]["name"] for q in body["queries"]] == ["good", "bad"]
    assert found == [Finding(package="bad", version="2.0", advisory="PYSEC-2024-1")]
    assert found[0].page == "https://osv.dev/vulnerability/PYSEC-2024-1"


@pytest.mark.parametrize(
    "transport",
    [
        httpx.MockTransport(unreachable),
        osv({"error": "busy"}, status=503),
        osv({"results": [{}]}),  # Fewer answers than questions.
        osv({"results": None}),
        osv([]),
        httpx.MockTransport(lambda _request: httpx.Response(200, text="<html>log in</html>")),
    ],
)
def test_an_answer_that_is_none_is_an_error_that_says_so(transport):
    with pytest.raises(CommandError, match="not checked"):
        find_vulnerabilities(PINS, transport=transport)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no pins"),
        ("# only a comment\n", "has no pins"),
        ("good==1.0\nbad>=2\n", r"pins.txt:2: not a pin"),
        ("bad==2.0; x\n", "not a pin"),
        ("\x00\n", "not a pin"),
    ],
)
def test_a_file_that_is_not_of_pins_is_refused(tmp_path, text, message):
    path = tmp_path / "pins.txt"
    path.write_text(text)

    with pytest.raises(ConfigError, match=message):
        read_pins(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no pins"),
        ("[project", "cannot be read"),
        ('[project]\ndependencies = ["a>=1"]', "project.dependencies: not a pin"),
        ("[project.optional-dependencies]\nx = [7]", "project.optional-dependencies.x: not a pin"),
    ],
)
def test_a_project_that_pins_nothing_is_refused(tmp_path, text, message):
    path = tmp_path / "pyproject.toml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=message):
        read_pins(path)


@pytest.mark.parametrize("word", ["a==", "==1", "a==1;x", "a ==1", "a==1==2"])
def test_a_word_that_is_not_a_pin_is_refused(word, capsys):
    assert main([word]) == 2

    assert "not a pin" in capsys.readouterr().err


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    for name in ("absent", "binary"):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_pins(tmp_path / name)


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ({"results": [{}, {}, {}]}, 0, "3 pins checked: 0 with known vulnerabilities"),
        (
            {"results": [{}, {"vulns": [ADVISORY]}, {}]},
            1,
            "bad==2.0: PYSEC-2024-1, https://osv.dev/",
        ),
    ],
)
def test_the_status_tells_what_was_found(tmp_path, monkeypatch, capsys, answer, status, said):
    path = tmp_path / "pins.txt"
    path.write_text("good==1.0\nbad==2.0  # why\n")
    monkeypatch.setattr(
        known_vulnerabilities,
        "find_vulnerabilities",
        lambda pins: find_vulnerabilities(pins, transport=osv(answer)),
    )

    # A pin that is named twice is asked for once.
    assert main([str(path), "more==3.0", "good==1.0"]) == status

    assert said in capsys.readouterr().out


def test_what_could_not_be_checked_has_a_status_of_its_own(tmp_path, capsys):
    assert main([str(tmp_path / "absent")]) == 2

    assert "error: " in capsys.readouterr().err
