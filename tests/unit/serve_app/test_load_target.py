"""Which URLs are taken, and whose service may be put under load."""

import socket

import pytest

from pipeline.contract.errors import ConfigError
from serve_app.load.target import find_target


@pytest.fixture
def names(monkeypatch):
    """Addresses of host names, instead of a name server's."""
    known = {}

    def look_up(host, port, **_):
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, 1, 6, "", (address, port))
            for address in known[host]
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


@pytest.mark.parametrize(
    ("url", "path", "host"),
    [
        ("http://127.0.0.1:8000", "/v1/predict", "127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "/v1/predict", "127.0.0.1:8000"),
        ("https://127.0.0.1/other/way?x=1", "/other/way?x=1", "127.0.0.1"),
        ("http://[::1]:8000", "/v1/predict", "[::1]:8000"),
    ],
)
def test_a_url_gives_the_request_line_and_the_host(url, path, host):
    target = find_target(url, is_mine=False)

    assert (target.path, target.host_header) == (path, host)
    assert target.is_tls == url.startswith("https")
    assert target.addresses[0][1][1] in (8000, 443)


@pytest.mark.parametrize("address", ["10.1.2.3", "192.168.0.9", "172.20.0.1", "fd00::5", "::1"])
def test_near_hosts_need_no_word(names, address):
    names["box"] = [address]

    assert find_target("http://box", is_mine=False).addresses[0][1] == (address, 80)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800::1", "::ffff:93.184.216.34"])
def test_any_other_host_must_be_called_ones_own(names, address):
    names["site"] = ["10.0.0.1", address]

    with pytest.raises(ConfigError, match=rf"http://site: .*{address}.*--yes-this-is-mine"):
        find_target("http://site", is_mine=False)
    assert len(find_target("http://site", is_mine=True).addresses) == 2


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://127.0.0.1",
        "http://",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:x",
        "http://[::1",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/\r\nX: y",
        "http://127.0.0.1/#part",
        "http://bücher",
        "http://127.0.0.1/" + "a" * 3000,
    ],
)
def test_a_url_that_cannot_be_used_is_shown_with_one_that_can(url):
    with pytest.raises(ConfigError, match=r"URL: .*http://127\.0\.0\.1:8000"):
        find_target(url, is_mine=False)


def test_a_password_in_the_url_is_refused_without_showing_it():
    with pytest.raises(ConfigError, match="no user name or password") as caught:
        find_target("http://me:secret@127.0.0.1", is_mine=False)

    assert "secret" not in str(caught.value)


def test_an_unknown_host_is_named(names):
    with pytest.raises(ConfigError, match=r"host 'nowhere' is not known: Name or service"):
        find_target("http://nowhere", is_mine=False)
