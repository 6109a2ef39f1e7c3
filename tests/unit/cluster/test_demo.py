"""The demo's serving configuration and its options."""

import socket

import pytest
import yaml

from cluster.__main__ import main
from cluster.demo import write_serve_config
from pipeline.contract.errors import ConfigError

TEMPLATE = {
    "http_options": {"host": "127.0.0.1", "port": 0},
    "applications": [{"import_path": "a:b", "args": {"bundle": "outputs/x"}}],
}


def write_template(tmp_path, port):
    TEMPLATE["http_options"]["port"] = port
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(TEMPLATE))
    return path


def test_the_bundle_becomes_absolute_and_a_free_port_is_kept(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    path, base_url = write_serve_config(write_template(tmp_path, port), tmp_path)

    config = yaml.safe_load(path.read_text())
    assert config["applications"][0]["args"]["bundle"] == str(tmp_path / "bundle")
    assert base_url == f"http://127.0.0.1:{port}"


def test_a_taken_port_is_replaced_by_a_free_one(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]

        path, base_url = write_serve_config(write_template(tmp_path, taken), tmp_path)

    port = yaml.safe_load(path.read_text())["http_options"]["port"]
    assert port != taken
    assert base_url == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("text", ["", "[]", "http_options: {}", "a: [", "applications: []"])
def test_a_file_that_is_no_serving_configuration_is_refused_by_name(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"config\.yaml: not a Ray Serve configuration"):
        write_serve_config(path, tmp_path)


def test_a_missing_job_file_is_one_line_and_status_2(tmp_path, capfd):
    status = main(["demo", "--config", str(tmp_path / "no.yaml")])

    error = capfd.readouterr().err
    assert status == 2
    assert "error:" in error
    assert "no.yaml" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("requests", ["0", "-1", "many", ""])
def test_an_impossible_number_of_requests_is_refused(requests, capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--config", "x", f"--requests={requests}"])

    assert "must be a whole number over 0" in capfd.readouterr().err
