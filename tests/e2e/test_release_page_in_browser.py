"""The page at `/release` in headless Chromium, which has no other address to ask."""

import pytest
import release_samples as samples
from browser import CHROMIUM, render

from serve_app.release.admin_app import AdminApp

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def test_state_weight_checks_and_disagreements_are_shown(tmp_path):
    desk = samples.FakeDesk(samples.under_way(), past=samples.history())

    shown = render(AdminApp(desk), "/release", tmp_path)

    for words in (
        ">running<",
        "<strong>25\u00a0%</strong>".replace("\u00a0", "&nbsp;"),
        "Step 2 of 4",
        "waits for accuracy",
        "257–512",
        "Not bad at all, though the ending drags.",
        "Earlier releases",
        "Abort, all traffic to stable",
    ):
        assert words in shown
    assert shown.count('class="check"') == 5
    assert shown.count("<path") == 5


def test_a_rollback_is_shown_with_check_limit_and_ids(tmp_path):
    shown = render(AdminApp(samples.FakeDesk(samples.rolled_back())), "/release", tmp_path)

    for words in ("rolled back by a check", "measured 1.1", samples.sample()[0].request_id):
        assert words in shown
    assert "<button" not in shown.partition('id="overview"')[2].partition("<script>")[0]


def test_nothing_yet_is_shown_as_that(tmp_path):
    shown = render(AdminApp(samples.FakeDesk()), "/", tmp_path)

    assert "no release yet" in shown
    assert "textlane release start BUNDLE" in shown


def test_tags_and_turned_writing_are_shown_and_not_obeyed(tmp_path):
    shown = render(AdminApp(samples.FakeDesk(samples.hostile())), "/release", tmp_path)

    body = shown.partition("<body>")[2].partition("<script>")[0]
    assert "<title>running · textlane release</title>" in shown
    assert "&lt;script&gt;" in body
    assert "<img" not in body
    assert "\\u{202e}" in body
    assert "\u202e" not in body
