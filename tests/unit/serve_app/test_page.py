"""The page at `/`: whole in itself, and safe with what it shows."""

import re
from html.parser import HTMLParser

import pytest
from bundles import write_tiny_bundle
from door import Door

LOADING = {"src", "href", "srcset", "action", "data", "poster", "formaction"}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    door = Door(write_tiny_bundle(tmp_path_factory.mktemp("page") / "bundle").folder)
    return door.send("GET", "/")


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.seen = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def test_the_page_is_served_as_html(page):
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"


def test_the_page_loads_nothing_from_anywhere(page):
    elements = Elements(page.text).seen

    loaded = {value for _, attrs in elements for name, value in attrs.items() if name in LOADING}
    assert loaded == {"data:,"}
    assert "://" not in page.text
    assert not re.search(r"@import|url\(|\bimport\s*\(|importScripts|sendBeacon", page.text)


def test_a_browser_is_told_to_hold_the_page_to_that(page):
    policy = page.headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy


def test_the_page_puts_what_it_is_told_in_as_text_only(page):
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page.text
    )


def test_every_element_that_the_script_asks_for_is_there(page):
    ids = {attrs.get("id") for _, attrs in Elements(page.text).seen}

    assert set(re.findall(r'\$\("(\w+)"\)', page.text)) <= ids


def test_every_field_of_the_form_has_a_label(page):
    elements = Elements(page.text).seen
    labelled = {attrs.get("for") for tag, attrs in elements if tag == "label"} | {"lines"}

    fields = {attrs["id"] for tag, attrs in elements if tag in ("textarea", "input")}
    assert fields <= labelled
