"""The demo's serving configuration and its options."""

import socket

import pytest
import yaml
from bundles import write_tiny_bundle

from cluster.__main__ import main
from cluster.demo import plan_demo_serving


@pytest.fixture
def output_dir(tmp_path):
    write_tiny_bundle(tmp_path / "bundle")
    return tmp_path


def write_template(tmp_path, port):
    path = tmp_path / "config.yaml"
    http = {"host": "127.0.0.1", "port": port}
    applications = [{"import_path": "a:b", "args": {"bundle": "outputs/x"}}]
    path.write_text(yaml.safe_dump({"http_options": http, "applications": applications}))
    return path


def test_the_bundle_becomes_absolute_and_a_free_port_is_kept(output_dir):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    plan = plan_demo_serving(write_template(output_dir, port), output_dir)

    config = yaml.safe_load((output_dir / "serve.yaml").read_text())
    assert config["applications"][0]["args"]["bundle"] == str(output_dir / "bundle")
    assert plan.base_url == f"http://127.0.0.1:{port}"


def test_a_taken_port_is_replaced_by_a_free_one(output_dir):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]

        plan = plan_demo_serving(write_template(output_dir, taken), output_dir)

    config = yaml.safe_load((output_dir / "serve.yaml").read_text())
    assert plan.port == config["http_options"]["port"] != taken


@pytest.mark.slow
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
