"""What `textlane serve` says, and what it refuses before it starts anything."""

import json
import shlex
from pathlib import Path

import pytest
from bundles import SEQUENCE, TOKEN, write_tiny_bundle

from cluster.__main__ import main
from cluster.listening import ListeningPort
from cluster.loopback import _on_loopback
from cluster.serve_command import curl_line, describe_ports
from cluster.serve_config import ServingPlan
from cluster.serving_state import ServingState, read_state, write_state


def port(number, *, address="127.0.0.1", process="raylet"):
    return ListeningPort(address=address, port=number, process=process)


def test_known_ports_are_named_one_by_one_and_the_others_by_process():
    lines = describe_ports(
        [port(3), port(1), port(2, process="haproxy"), port(4, process="gcs_server")],
        {2: "requests"},
    )

    assert [line.split() for line in lines[1:]] == [
        ["127.0.0.1:2", "haproxy:", "requests"],
        ["127.0.0.1", "gcs_server:", "4"],
        ["127.0.0.1", "raylet:", "1", "3"],
    ]


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.2"])
def test_each_port_that_others_can_reach_has_a_warning(address):
    lines = describe_ports([port(1), port(2, address=address)], {})

    warnings = [line for line in lines if line.startswith("warning")]
    assert len(warnings) == 1
    assert address in warnings[0]


def test_no_port_at_all_is_not_taken_for_closed():
    assert describe_ports([], {})[0].startswith("warning")


@pytest.mark.parametrize(
    ("task", "takes_pairs", "keys"),
    [
        (SEQUENCE, False, {"text"}),
        (SEQUENCE, True, {"text", "text_pair"}),
        (TOKEN, False, {"words"}),
    ],
)
def test_the_example_request_is_of_the_models_kind(tmp_path, task, takes_pairs, keys):
    bundle = write_tiny_bundle(tmp_path / "bundle", task=task, takes_pairs=takes_pairs)
    plan = ServingPlan(
        config={},
        bundle=bundle.folder,
        host="0.0.0.0",
        port=8000,
        dashboard_port=1,
        admin_port=None,
        with_haproxy=True,
        settings={},
    )

    words = shlex.split(curl_line(plan, bundle.manifest))

    assert words[:3] == ["curl", "-s", "http://127.0.0.1:8000/v1/predict"]
    assert json.loads(words[-1]).keys() == keys


def test_a_missing_bundle_ends_at_once_with_one_line(tmp_path, capfd):
    status = main(["serve", "--bundle", str(tmp_path / "no")])

    error = capfd.readouterr().err
    assert status == 2
    assert "there is no bundle here" in error
    assert "--bundle" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("number", ["-1", "65536", "x", "", "1.5", "²"])
@pytest.mark.parametrize("option", ["--port", "--dashboard-port", "--grpc-port"])
def test_what_is_no_port_is_refused(option, number, capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["serve", f"{option}={number}"])

    assert "must be a number from 0 to 65535" in capfd.readouterr().err


def test_the_state_is_read_as_it_was_written_and_the_first_is_that_of_the_beginning(tmp_path):
    assert read_state(tmp_path) == ServingState()

    state = ServingState(stage="x", is_running=True, metrics_port=1, error="é", is_users=True)
    write_state(tmp_path, state)

    assert read_state(tmp_path) == state
    assert [path.name for path in Path(tmp_path).iterdir()] == ["state.json"]


@pytest.mark.parametrize(
    ("asked", "bound"),
    [
        ("[::]:0", "127.0.0.1:0"),
        ("0.0.0.0:9000", "127.0.0.1:9000"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("unix:/x", "unix:/x"),
    ],
)
def test_a_grpc_server_that_asks_for_all_interfaces_gets_loopback(asked, bound):
    asked_of_grpc = []

    def add_port(server, address):
        asked_of_grpc.append((server, address))
        return 7

    assert _on_loopback(add_port)("server", asked) == 7
    assert asked_of_grpc == [("server", bound)]


@pytest.mark.parametrize("asked", ["[::]:9000", "0.0.0.0:9000"])
@pytest.mark.parametrize("front_door", ["192.0.2.2:9000", "[::]:9000"])
def test_the_front_door_alone_is_bound_where_requests_are_taken(asked, front_door):
    asked_of_grpc = []
    add_port = _on_loopback(
        lambda _, address: asked_of_grpc.append(address) or 7, front_door=front_door
    )

    add_port("server", asked)
    add_port("server", "[::]:40000")

    assert asked_of_grpc == [front_door, "127.0.0.1:40000"]
