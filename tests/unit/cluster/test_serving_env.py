"""The environment that Ray's processes get."""

import socket
import stat

import pytest

from cluster.loopback import FRONT_DOOR
from cluster.serving_env import INNER_PORTS, ServingPlace, free_port, is_free, serving_environ


@pytest.fixture
def place(tmp_path):
    return ServingPlace(folder=tmp_path, with_haproxy=True, host="127.0.0.1")


def test_the_fast_settings_are_on_and_every_file_is_in_our_folder(place, tmp_path):
    environ = serving_environ({}, place)

    assert environ["RAY_SERVE_THROUGHPUT_OPTIMIZED"] == environ["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
    places = [value for value in environ.values() if "/" in value]
    assert len(places) >= 8
    assert all(value.startswith(str(tmp_path)) for value in places)


def test_what_the_user_set_beats_our_choices_but_not_the_places(place, tmp_path):
    given = {
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0",
        "RAY_SERVE_HAPROXY_STATS_PORT": "12345",
        "RAY_ADDRESS": "other:6379",
        "RAY_TMPDIR": "/elsewhere",
        "PATH": "/bin",
    }

    environ = serving_environ(given, place)

    assert environ["RAY_SERVE_THROUGHPUT_OPTIMIZED"] == "0"
    assert environ["RAY_SERVE_HAPROXY_STATS_PORT"] == "12345"
    assert environ["PATH"] == "/bin"
    assert environ["RAY_TMPDIR"] == str(tmp_path / "r")
    assert "RAY_ADDRESS" not in environ


def test_without_haproxy_no_port_of_it_and_none_of_the_replicas_is_asked_for(tmp_path):
    place = ServingPlace(folder=tmp_path, with_haproxy=False, host="127.0.0.1")

    environ = serving_environ({"RAY_SERVE_ENABLE_HA_PROXY": "1"}, place)

    assert environ["RAY_SERVE_ENABLE_HA_PROXY"] == environ["RAY_SERVE_ENABLE_DIRECT_INGRESS"] == "0"
    assert not INNER_PORTS.keys() & environ.keys()
    assert not (tmp_path / "haproxy").exists()


def test_a_new_token_is_in_a_file_of_the_user_alone(place, tmp_path):
    environ = serving_environ({"RAY_AUTH_TOKEN": "old"}, place)

    path = tmp_path / "ray_token"
    assert environ["RAY_AUTH_MODE"] == "token"
    assert environ["RAY_AUTH_TOKEN_PATH"] == str(path)
    assert "RAY_AUTH_TOKEN" not in environ
    assert len(path.read_text()) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_users_own_way_of_authentication_is_kept(place, tmp_path):
    given = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "mine"}

    environ = serving_environ(given, place)

    assert {key: environ[key] for key in given} == given
    assert not (tmp_path / "ray_token").exists()


def test_a_port_is_free_until_somebody_listens_on_it():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]

        assert not is_free("127.0.0.1", port)
        assert free_port("127.0.0.1", preferred=port) != port

    assert free_port("127.0.0.1", preferred=port) == port


def test_port_0_asks_for_any_that_is_free():
    assert free_port("127.0.0.1", preferred=0) > 0


def test_only_rays_own_proxy_must_be_told_where_grpc_requests_are_taken(tmp_path):
    places = [
        ServingPlace(folder=tmp_path, with_haproxy=with_haproxy, host="::", grpc_port=9000)
        for with_haproxy in (False, True)
    ]

    alone, behind_haproxy = (serving_environ({"RAY_AUTH_MODE": "token"}, p) for p in places)

    assert alone[FRONT_DOOR] == "[::]:9000"
    assert FRONT_DOOR not in behind_haproxy
    assert int(alone["RAY_SERVE_GRPC_MAX_MESSAGE_SIZE"]) == 16 * 2**20
