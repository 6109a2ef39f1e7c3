"""How `textlane doctor` finds a service on this machine, and when it reads its pages."""

import json
from pathlib import Path

import pytest

from cluster.__main__ import main
from cluster.doctor import examination
from cluster.doctor.discovery import (
    DISCOVERY_NAME,
    find_discovery_files,
    find_service_url,
    read_targets,
)
from cluster.doctor.scraping import Scraper
from pipeline.contract.errors import CommandError, MissingFileError


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


def test_a_bare_name_in_the_working_folder_is_a_file_like_any_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / DISCOVERY_NAME).write_text("[]")

    assert find_service_url(Path(DISCOVERY_NAME)) == "http://127.0.0.1:8000"
    assert find_service_url(Path("/" + DISCOVERY_NAME)) == "http://127.0.0.1:8000"


def write_session(tmp_path, name, site):
    session = tmp_path / f"tl-{name}" / "r" / name
    session.mkdir(parents=True)
    target = site.url.removeprefix("http://")
    (session / DISCOVERY_NAME).write_text(json.dumps([{"targets": [target]}]))
    return session / DISCOVERY_NAME


def test_the_living_ray_is_told_from_dead_ones_that_had_the_same_port(tmp_path, site, monkeypatch):
    dead, living = (write_session(tmp_path, name, site) for name in ("session_6", "session_7"))
    scraper = Scraper()

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

    scraper = Scraper(clock=lambda: now[0], sleep=sleep)
    scrapes = scraper.watch([f"{site.url}/metrics", "http://127.0.0.1:9/"], seconds=16.0)

    assert [scrape.time_s for scrape in scrapes] == [2.0 * number for number in range(9)]
    assert sum(waits) == 16.0
    assert all(len(scrape.samples) == 2 for scrape in scrapes)
