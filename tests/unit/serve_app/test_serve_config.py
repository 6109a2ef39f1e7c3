"""The serving schema, its layers and what it refuses."""

from pathlib import Path

import pytest
import yaml
from bundles import write_tiny_bundle

from pipeline.contract.errors import ConfigError
from serve_app.config import (
    ServeSettings,
    load_serve_settings,
    settings_from_arguments,
)
from serve_app.limits import resolve_limits

SHIPPED = Path(__file__).parents[3] / "serve_app" / "config.yaml"


def test_shipped_file_loads_with_the_defaults_it_spells_out():
    settings = load_serve_settings(SHIPPED).settings

    assert settings == ServeSettings(bundle="outputs/demo_cpu/bundle")
    assert settings.batch_wait_timeout_ms == 10.0


def test_shipped_file_listens_on_the_loopback_only():
    assert yaml.safe_load(SHIPPED.read_text())["http_options"]["host"] == "127.0.0.1"


def test_all_shipped_deployments_fit_on_one_core():
    settings = load_serve_settings(SHIPPED).settings

    lanes = settings.replica_range("short")[1] + settings.replica_range("long")[1]
    reserved = settings.ingress_replicas * settings.ingress_num_cpus
    assert reserved + lanes * settings.lane_num_cpus <= 1.0


def test_environment_beats_the_file_and_set_beats_the_environment(monkeypatch):
    monkeypatch.setenv("TEXTLANE_SERVE__BUNDLE", "from/env")
    monkeypatch.setenv("TEXTLANE_SERVE__REQUEST_TIMEOUT_S", "7")

    loaded = load_serve_settings(SHIPPED, ["request_timeout_s=8"])

    assert (loaded.settings.bundle, loaded.settings.request_timeout_s) == ("from/env", 8.0)
    assert loaded.origins["bundle"] == "environment TEXTLANE_SERVE__BUNDLE"
    assert loaded.origins["request_timeout_s"] == "--set"


def test_environment_beats_the_arguments_of_the_application(monkeypatch):
    monkeypatch.setenv("TEXTLANE_SERVE__BUNDLE", "from/env")

    assert settings_from_arguments({"bundle": "given"}).bundle == "from/env"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        (
            "TEXTLANE_SERVE_BUNDLE",
            "Write TEXTLANE_SERVE__BUNDLE, with two underscores after SERVE.",
        ),
        ("TEXTLANE_SERVE_X", "Take it out; settings of serving begin with TEXTLANE_SERVE__."),
    ],
)
def test_variable_with_one_underscore_is_not_ignored(monkeypatch, name, remedy):
    monkeypatch.setenv(name, "from/env")

    for load in (lambda: load_serve_settings(SHIPPED), lambda: settings_from_arguments({})):
        with pytest.raises(ConfigError) as caught:
            load()
        assert str(caught.value) == (
            f"environment {name}: unknown setting (got 'from/env'). {remedy}"
        )


def test_plain_mapping_is_a_configuration_too(tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text("bundle: b\nmax_batch_tokens: 1024\n")

    assert load_serve_settings(file).settings.max_batch_tokens == 1024


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (
            {"short_max_tokens": 600, "max_batch_tokens": 512},
            ["short_max_tokens 600", "max_batch_tokens 512"],
        ),
        (
            {"max_batch_requests": 32, "max_queued_requests": 16},
            ["max_batch_requests 32", "max_queued_requests 16"],
        ),
        ({"max_texts_per_request": 600}, ["max_texts_per_request 600", "max_queued_requests 512"]),
        (
            {"max_text_chars": 100, "max_body_bytes": 99},
            ["max_text_chars 100", "max_body_bytes 99"],
        ),
        (
            {"batch_wait_timeout_ms": 500, "request_timeout_s": 0.5},
            ["batch_wait_timeout_ms 500", "request_timeout_s 0.5"],
        ),
    ],
)
def test_impossible_pair_is_refused_with_both_numbers(values, numbers):
    with pytest.raises(ConfigError) as caught:
        settings_from_arguments({"bundle": "b", **values})

    assert all(number in str(caught.value) for number in numbers)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "bundle: the setting is missing"),
        ({"bundle": "b", "max_batch_request": 1}, "Did you mean max_batch_requests?"),
        ({"bundle": "b", "threads_per_replica": "2"}, "threads_per_replica"),
        ({"bundle": "b", "model": "model.pt"}, "model"),
        ({"bundle": "b", "tuning": ""}, "tuning: string should have at least 1 character"),
        ({"bundle": "b", "tuning": 3}, "It means: File that `textlane tune` wrote"),
        ({"bundle": 5}, "It means: Folder of the bundle; a relative path starts where"),
        ({"bundle": 5}, "serve_app/config.py explains every setting, serve_app/config.yaml is"),
    ],
)
def test_wrong_setting_is_refused_by_name(values, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        settings_from_arguments(values)


@pytest.mark.parametrize("applications", [[], [{}, {}], "one", [{"args": 3}], ["x"]])
def test_file_without_exactly_one_application_is_refused(tmp_path, applications):
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump({"applications": applications}))

    with pytest.raises(ConfigError, match="applications"):
        load_serve_settings(file)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("serve_config") / "bundle", max_seq_len=16)


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ({"max_batch_tokens": 15}, ["max_batch_tokens 15", "max_seq_len 16"]),
        ({"short_max_tokens": 16}, ["short_max_tokens 16", "max_seq_len 16"]),
        ({"max_batch_requests": 64}, ["max_batch_requests 64", "limit 32"]),
        ({"max_text_chars": 201}, ["max_text_chars 201", "limit 200"]),
    ],
)
def test_setting_that_does_not_fit_the_bundle_is_refused_with_both_numbers(bundle, values, numbers):
    settings = ServeSettings(bundle="b", **values)

    with pytest.raises(ConfigError) as caught:
        resolve_limits(settings, bundle)

    assert all(number in str(caught.value) for number in numbers)


def test_the_file_of_a_job_is_refused_with_what_to_give_instead():
    job_file = SHIPPED.parents[1] / "job_configs" / "demo_cpu.yaml"

    with pytest.raises(
        ConfigError, match=r"this is the file of a job.* takes the Ray Serve"
    ) as caught:
        load_serve_settings(job_file)

    assert "Leave --config out and name the bundle: --bundle outputs/demo_cpu/bundle." in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "the file is empty"), ("a: [", "not valid YAML"), ("- a", "must hold a mapping")],
)
def test_a_file_that_is_no_mapping_is_refused_with_where_a_complete_one_is(tmp_path, text, message):
    file = tmp_path / "serve.yaml"
    file.write_text(text)

    with pytest.raises(ConfigError, match=f"{message}.*serve_app/config.yaml is a complete file"):
        load_serve_settings(file)


@pytest.mark.parametrize("keys", [["short-1"], [], [12345678], "not-a-list", ["good-key-1", None]])
def test_unusable_api_keys_are_refused_without_being_shown(keys):
    with pytest.raises(ConfigError, match="api_keys") as caught:
        settings_from_arguments({"bundle": "b", "api_keys": keys})

    for secret in ("short-1", "12345678", "not-a-list", "good-key-1"):
        assert secret not in str(caught.value)


def test_api_keys_come_from_the_environment_and_are_not_printed(monkeypatch):
    monkeypatch.setenv("TEXTLANE_SERVE__API_KEYS", '["key-of-a-client"]')

    settings = settings_from_arguments({"bundle": "b"})

    assert [key.get_secret_value() for key in settings.api_keys] == ["key-of-a-client"]
    assert "key-of-a-client" not in f"{settings} {settings!r} {settings.model_dump_json()}"


def test_replicas_are_a_number_or_the_least_and_the_most():
    settings = settings_from_arguments({"bundle": "b", "short_replicas": [1, 4]})

    assert (settings.replica_range("short"), settings.replica_range("long")) == ((1, 4), (1, 1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0, "long_replicas: it must be a whole number from 1, or two of them"),
        ([1], r"two of them such as \[1, 4\]"),
        ([1, 2.0], r"two of them such as \[1, 4\]"),
        ([4, 1], r"\[4, 1\] has its least over its most"),
    ],
)
def test_replicas_that_cannot_be_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        settings_from_arguments({"bundle": "b", "long_replicas": given})
