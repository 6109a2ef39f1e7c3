"""The script that Ray starts in the place of HAProxy, run on what Ray writes."""

import os
import subprocess

import pytest

from cluster.haproxy import find_haproxy, write_haproxy_starter

CONFIG = """\
defaults
    errorfile 502 /ray/500.http
    errorfile 503 /ray/500.http
    errorfile 504 /ray/500.http
frontend prometheus
    bind :9101
frontend http_frontend
    bind 127.0.0.1:8000
    use_backend http-textlane if is_http-textlane
    default_backend default_backend
backend default_backend
    http-request return status 404 content-type text/plain lf-string "Path \\'%[path]\\' not found."
backend http-textlane
    server one 127.0.0.1:30000 check
frontend grpc_frontend
    bind 127.0.0.1:9000 proto h2
listen stats
  bind *:8404
"""


@pytest.fixture
def start(tmp_path):
    def start(config, *, host="127.0.0.1", arguments=("-db", "-f")):
        """Return what is left of a configuration when `cat` stands for HAProxy."""
        given = write_haproxy_starter(tmp_path, binary="/bin/cat", host=host)
        path = tmp_path / "haproxy.cfg"
        path.write_text(config)
        # `cat -db -f` is no command of its own: the script's last line must get all arguments.
        script = tmp_path / "haproxy"
        script.write_text(script.read_text().replace('exec /bin/cat "$@"', 'exec /bin/cat "$3"'))
        assert given == {"RAY_SERVE_HAPROXY_BINARY_PATH": str(script)}
        return subprocess.run([script, *arguments, path], capture_output=True, text=True)

    return start


def binds(config):
    return [line.strip() for line in config.splitlines() if line.strip().startswith("bind")]


def test_what_ray_binds_to_all_interfaces_is_bound_to_loopback(start):
    assert binds(start(CONFIG).stdout) == [
        "bind 127.0.0.1:9101",
        "bind 127.0.0.1:8000",
        "bind 127.0.0.1:9000 proto h2",
        "bind 127.0.0.1:8404",
    ]


@pytest.mark.parametrize(("host", "written"), [("0.0.0.0", "0.0.0.0:8000"), ("::", "ipv6@:::8000")])
def test_an_open_host_opens_the_front_doors_alone(start, host, written):
    config = start(CONFIG, host=host).stdout

    assert binds(config)[0] == "bind 127.0.0.1:9101"
    assert binds(config)[1] == f"bind {written}"
    assert binds(config)[3] == "bind 127.0.0.1:8404"
    assert "server one 127.0.0.1:30000 check" in config


def test_lost_replicas_are_answered_in_our_form(start, tmp_path):
    config = start(CONFIG).stdout

    assert f"errorfile 502 {tmp_path}/503.http" in config
    assert f"errorfile 503 {tmp_path}/503.http" in config
    assert f"errorfile 504 {tmp_path}/504.http" in config
    head, _, body = (tmp_path / "503.http").read_bytes().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert f"content-length: {len(body)}".encode() in head
    assert b'"code": "not_ready"' in body


def test_an_unknown_path_is_404_only_when_an_application_is_known(start):
    without = CONFIG.replace("    use_backend http-textlane if is_http-textlane\n", "")

    assert "return status 404 content-type" in start(CONFIG).stdout
    assert "return status 503 errorfile" in start(without).stdout


def test_other_arguments_than_rays_are_refused(start):
    result = start(CONFIG, arguments=("-f", "-db"))

    assert result.returncode == 2
    assert "arguments are not as expected" in result.stderr


def test_the_users_haproxy_is_taken_and_else_that_of_the_package():
    assert find_haproxy({"RAY_SERVE_HAPROXY_BINARY_PATH": "/my/haproxy"}) == "/my/haproxy"
    assert os.access(find_haproxy({}), os.X_OK)
