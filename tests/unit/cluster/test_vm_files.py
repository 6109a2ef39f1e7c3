"""The files of Ray's cluster launcher are valid for the installed Ray, and close ports."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from cluster.ray_settings import RAY_SETTINGS

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "cluster/vm").glob("*.yaml"))
TEXT_OF = {path.stem: path.read_text() for path in FILES}
CONFIGS = [pytest.param(yaml.safe_load(text), id=name) for name, text in TEXT_OF.items()]


@pytest.fixture(scope="module")
def validator():
    ray = Path(find_spec("ray").origin).parent  # Finds it without importing it.
    return Draft202012Validator(json.loads((ray / "autoscaler/ray-schema.json").read_text()))


def test_there_is_one_for_own_machines_and_one_for_a_cloud():
    assert {config.values[0]["provider"]["type"] for config in CONFIGS} == {"local", "aws"}


@pytest.mark.parametrize("config", CONFIGS)
def test_ray_takes_the_file(config, validator):
    assert [error.message for error in validator.iter_errors(config)] == []


@pytest.mark.parametrize("config", CONFIGS)
def test_ray_would_refuse_a_misspelt_setting(config, validator):
    assert list(validator.iter_errors({**config, "idle_timeout": 5}))


@pytest.mark.parametrize("config", CONFIGS)
def test_the_head_does_no_work_and_its_dashboard_stays_at_home(config):
    (start,) = [line for line in config["head_start_ray_commands"] if "--head" in line]

    resources = config.get("available_node_types", {}).get("head", {}).get("resources")
    assert resources == {"CPU": 0, "GPU": 0} or "--num-cpus=0 --num-gpus=0" in start
    assert "--dashboard-host=127.0.0.1" in start
    assert "--autoscaling-config" in start


@pytest.mark.parametrize("config", CONFIGS)
def test_the_token_comes_from_a_file_of_the_machine(config):
    options = " ".join(config["docker"]["run_options"])

    assert "-v /etc/textlane/token:/run/secrets/ray_token:ro" in options
    assert "RAY_AUTH_TOKEN_PATH=/run/secrets/ray_token" in options


@pytest.mark.parametrize("text", TEXT_OF.values(), ids=list(TEXT_OF))
def test_the_version_of_ray_is_the_pinned_one_and_its_settings_are_listed(text):
    (pin,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.M)
    own = {"RAY_HEAD_IP"}  # Set by the launcher itself.

    assert f"Ray {pin}" in text
    assert set(re.findall(r"\bRAY_\w+", text)) - own <= {setting.name for setting in RAY_SETTINGS}


def cloud():
    (config,) = [c.values[0] for c in CONFIGS if c.values[0]["provider"]["type"] == "aws"]
    return config


def test_only_the_head_may_start_machines_and_has_what_it_needs_for_it():
    types = cloud()["available_node_types"]

    profiles = {
        name: one["node_config"]["IamInstanceProfile"]["Name"] for name, one in types.items()
    }
    assert profiles == {"head": "textlane-head", "cpu": "textlane-node", "gpu": "textlane-node"}
    assert "iam:PassRole" in TEXT_OF["aws"]
    (command,) = cloud()["head_setup_commands"]
    assert re.search(r"boto3==\d+\.\d+\.\d+$", command)
    # Ray's own default would add a nightly wheel of another version where it found no Ray.
    assert cloud()["setup_commands"] == []


def test_machines_of_the_cloud_are_reached_by_ssh_alone():
    config = cloud()

    opened = config["provider"]["security_group"]["IpPermissions"]
    assert [(rule["FromPort"], rule["ToPort"]) for rule in opened] == [(22, 22)]
    assert all(r["CidrIp"] != "0.0.0.0/0" for rule in opened for r in rule["IpRanges"])
    for node in config["available_node_types"].values():
        assert node["node_config"]["MetadataOptions"]["HttpTokens"] == "required"
