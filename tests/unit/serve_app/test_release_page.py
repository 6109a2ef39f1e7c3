"""The page at `/release`: whole in itself, and safe with what it shows."""

import asyncio
import re
from html.parser import HTMLParser
from typing import get_args

import httpx
import pytest
import release_samples as samples

from serve_app.release.admin_app import AdminApp
from serve_app.release.status import StateName
from serve_app.release.wording import STATE_WORDS

LOADING = {"src", "href", "srcset", "action", "data", "poster", "formaction"}


@pytest.fixture(scope="module")
def page():
    async def call():
        transport = httpx.ASGITransport(AdminApp(samples.FakeDesk()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/release")

    return asyncio.run(call())


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.seen = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def test_the_page_is_html_that_no_browser_keeps(page):
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-store"


def test_the_page_loads_nothing_from_anywhere(page):
    elements = Elements(page.text).seen

    loaded = {value for _, attrs in elements for name, value in attrs.items() if name in LOADING}
    assert loaded == {"data:,"}
    assert "://" not in page.text
    assert not re.search(r"@import|url\(|\bimport\s*\(|importScripts|sendBeacon", page.text)


def test_a_browser_is_told_to_hold_the_page_to_that(page):
    policy = page.headers["content-security-policy"]

    for rule in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'"):
        assert rule in policy


def test_the_page_puts_what_it_is_told_in_as_text_only(page):
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page.text
    )


def test_every_element_that_the_script_asks_for_is_there(page):
    ids = {attrs.get("id") for _, attrs in Elements(page.text).seen}

    assert set(re.findall(r'\$\("(\w+)"\)', page.text)) <= ids


def test_the_page_and_the_terminal_know_every_state(page):
    words = page.text.partition("const WORDS = {")[2].partition("};")[0]

    assert set(re.findall(r"(\w+): \[", words)) == set(get_args(StateName)) == set(STATE_WORDS)
