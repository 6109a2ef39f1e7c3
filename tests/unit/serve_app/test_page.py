"""The pages at `/` and `/docs`: whole in themselves, and safe with what they show."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from bundles import write_tiny_bundle
from door import Door

import serve_app

LOADING = {"src", "href", "srcset", "action", "data", "poster", "formaction"}


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    return Door(write_tiny_bundle(tmp_path_factory.mktemp("page") / "bundle").folder)


@pytest.fixture(scope="module", params=["/", "/docs"])
def page(door, request):
    return door.send("GET", request.param)


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


def test_no_page_of_the_service_refers_to_another_host(door):
    folder = Path(serve_app.__file__).parent
    written = {file.name: file.read_text(encoding="utf-8") for file in folder.rglob("*.html")}
    served = {path: door.send("GET", path).text for path in ("/", "/docs")}

    assert {
        name for name, text in {**written, **served}.items() if "//" in _without_code(text)
    } == set()
    assert door.send("GET", "/redoc").status_code == 404


def _without_code(text):
    # Comments in scripts begin with two slashes as well, and a space.
    return re.sub(r"// [^\n]*", "", text)
