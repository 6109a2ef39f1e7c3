"""What `textlane serve` starts, from file, environment and command line."""

import importlib
import socket

import pytest
import yaml
from bundles import write_tiny_bundle

from cluster.serve_config import (
    GRPC_FUNCTION,
    ServeOptions,
    default_config,
    in_words_of_the_command,
    plan_serving,
    read_serve_file,
    settings_environ,
)
from cluster.serving_env import free_port
from pipeline.contract.errors import ConfigError, MissingFileError
from serve_app.served import load_served_bundle


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles")
    for name in ("file", "environment", "set", "option"):
        write_tiny_bundle(folder / name)
    return folder


@pytest.fixture
def write_config(tmp_path):
    def write(*, grpc_options=None, **arguments):
        path = tmp_path / "config.yaml"
        application = {"name": "x", "import_path": "a:b", "args": arguments}
        http = {"host": "127.0.0.1", "port": 0}
        config = {"http_options": http, "applications": [application]}
        if grpc_options is not None:
            config["grpc_options"] = grpc_options
        path.write_text(yaml.safe_dump(config))
        return path

    return write


def served_bundle(plan):
    return plan.config["applications"][0]["args"]["bundle"]


def test_the_bundle_comes_from_option_set_environment_and_file_in_this_order(bundles, write_config):
    config = write_config(bundle=str(bundles / "file"))
    environ = {"TEXTLANE_SERVE__BUNDLE": str(bundles / "environment")}
    sets = (f"bundle={bundles / 'set'}",)
    option = str(bundles / "option")

    plans = [
        plan_serving(ServeOptions(config=config, sets=sets, bundle=option), environ),
        plan_serving(ServeOptions(config=config, sets=sets), environ),
        plan_serving(ServeOptions(config=config), environ),
        plan_serving(ServeOptions(config=config), {}),
    ]

    names = ("option", "set", "environment", "file")
    assert [served_bundle(plan) for plan in plans] == [str(bundles / name) for name in names]
    assert [plan.settings for plan in plans] == [{}] * 4


def test_a_missing_bundle_is_refused_in_the_words_of_serving(tmp_path, write_config):
    with pytest.raises(MissingFileError, match="there is no bundle here") as ours:
        plan_serving(ServeOptions(config=write_config(bundle=str(tmp_path / "no"))), {})
    with pytest.raises(MissingFileError) as theirs:
        load_served_bundle(tmp_path / "no", named_by="--bundle")

    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("given", ["", "  ", "a\0b"])
def test_a_bundle_without_a_name_is_refused(given, write_config):
    with pytest.raises(ConfigError, match=r"there is no bundle to serve.*--bundle"):
        plan_serving(ServeOptions(config=write_config(), bundle=given), {})


def test_a_file_that_names_no_bundle_is_refused(write_config):
    with pytest.raises(ConfigError, match="there is no bundle to serve"):
        plan_serving(ServeOptions(config=write_config()), {})


@pytest.mark.parametrize(
    ("with_haproxy", "host", "inner"),
    [(True, "0.0.0.0", "127.0.0.1"), (True, "::", "127.0.0.1"), (False, "0.0.0.0", "0.0.0.0")],
)
def test_behind_haproxy_ray_stays_on_loopback(bundles, write_config, with_haproxy, host, inner):
    options = ServeOptions(
        config=write_config(bundle=str(bundles / "file")), host=host, with_haproxy=with_haproxy
    )

    plan = plan_serving(options, {})

    assert plan.config["http_options"] == {"host": inner, "port": plan.port}
    assert plan.host == host
    assert plan.base_url == f"http://{'[::1]' if host == '::' else '127.0.0.1'}:{plan.port}"


def test_a_name_of_this_machine_becomes_its_address(bundles, write_config):
    config = write_config(bundle=str(bundles / "file"))

    assert plan_serving(ServeOptions(config=config, host="localhost"), {}).host in {
        "127.0.0.1",
        "::1",
    }


@pytest.mark.parametrize("host", ["", "a b", "no-such-host.invalid", "1.2.3.4.5", "é" * 300])
def test_what_is_no_address_is_refused(bundles, write_config, host):
    config = write_config(bundle=str(bundles / "file"))

    # The empty one is as good as none: the file's is taken.
    if not host:
        assert plan_serving(ServeOptions(config=config, host=host), {}).host == "127.0.0.1"
        return
    with pytest.raises(ConfigError, match="--host: not an address"):
        plan_serving(ServeOptions(config=config, host=host), {})


def test_a_taken_port_is_named_with_what_to_do(bundles, write_config):
    config = write_config(bundle=str(bundles / "file"))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]

        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{taken}: .*taken.*--port 0"):
            plan_serving(ServeOptions(config=config, port=taken), {})
        for name in ("dashboard_port", "grpc_port"):
            option = f"--{name.replace('_', '-')}"
            with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{taken}: .*taken.*{option} 0"):
                plan_serving(ServeOptions(config=config, **{name: taken}), {})


def test_without_being_asked_for_there_is_no_grpc(bundles, write_config):
    plan = plan_serving(ServeOptions(config=write_config(bundle=str(bundles / "file"))), {})

    assert (plan.grpc_port, plan.grpc_address) == (None, None)
    assert "grpc_servicer_functions" not in plan.config["grpc_options"]


def test_a_grpc_port_registers_our_service_there(bundles, write_config):
    config = write_config(bundle=str(bundles / "file"))

    plan = plan_serving(ServeOptions(config=config, grpc_port=0, host="0.0.0.0"), {})

    module, _, name = GRPC_FUNCTION.rpartition(".")
    assert plan.config["grpc_options"] == {
        "port": plan.grpc_port,
        "grpc_servicer_functions": [GRPC_FUNCTION],
    }
    assert plan.grpc_address == f"127.0.0.1:{plan.grpc_port}"
    assert callable(getattr(importlib.import_module(module), name))


def test_the_files_grpc_options_are_kept_and_its_port_gives_way_to_the_option(
    bundles, write_config
):
    functions = ["mine.add"]
    given = {"port": 0, "grpc_servicer_functions": functions, "enable_reflection": False}
    config = write_config(bundle=str(bundles / "file"), grpc_options=given)

    plans = [plan_serving(ServeOptions(config=config, grpc_port=port), {}) for port in (None, 0)]

    for plan in plans:
        assert plan.config["grpc_options"] == {**given, "port": plan.grpc_port}
        assert plan.grpc_port


def test_http_and_grpc_cannot_share_a_port(bundles, write_config):
    config = write_config(bundle=str(bundles / "file"))
    port = free_port("127.0.0.1", preferred=0)

    with pytest.raises(ConfigError, match=r"--grpc-port: HTTP and gRPC cannot share a port"):
        plan_serving(ServeOptions(config=config, port=port, grpc_port=port), {})


@pytest.mark.parametrize(
    "text",
    [
        "http_options: {}",
        "applications: []",
        "{http_options: {host: a, port: 1}, applications: [{args: {}}]}",
        "{http_options: {host: a, port: 1}, applications: [1]}",
        "{http_options: {host: a, port: 1}, applications: [{import_path: a, args: 1}]}",
        "{http_options: {host: a, port: 1}, applications: [{import_path: a}, {import_path: a}]}",
        "{http_options: {host: a, port: 1}, grpc_options: 9, applications: [{import_path: a}]}",
    ],
)
def test_a_file_that_is_no_serving_configuration_is_refused_by_name(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"config\.yaml: not a Ray Serve configuration"):
        read_serve_file(path)


@pytest.mark.parametrize(
    "port", ["65536", "-1", ".inf", ".nan", "true", "'8000'", "1.5", "b", "[]"]
)
@pytest.mark.parametrize("options", ["http_options", "grpc_options"])
def test_a_port_that_is_none_is_refused_by_name(tmp_path, options, port):
    ports = {"http_options": "1", "grpc_options": "2", options: port}
    path = tmp_path / "config.yaml"
    path.write_text(
        f"http_options: {{host: a, port: {ports['http_options']}}}\n"
        f"grpc_options: {{port: {ports['grpc_options']}}}\n"
        "applications: [{import_path: a}]\n"
    )

    with pytest.raises(ConfigError, match=rf"config\.yaml: {options}\.port: must be a number"):
        read_serve_file(path)


@pytest.mark.parametrize("value", ["[a", "{", "\t", "a: b: c", "\x07"])
def test_a_bundle_that_is_no_yaml_is_refused(bundles, write_config, value):
    config = write_config(bundle=str(bundles / "file"))

    for sets, environ in [((f"bundle={value}",), {}), ((), {"TEXTLANE_SERVE__BUNDLE": value})]:
        with pytest.raises(ConfigError, match=r"not a value in YAML.*|no bundle to serve"):
            plan_serving(ServeOptions(config=config, sets=sets), environ)


@pytest.mark.parametrize("value", ["²", "-1", "8002x", "9" * 5000])
def test_an_admin_port_that_is_none_is_left_to_the_service_to_refuse(bundles, write_config, value):
    config = write_config(bundle=str(bundles / "file"))

    plan = plan_serving(ServeOptions(config=config, port=0, sets=(f"admin_port={value}",)), {})

    assert plan.admin_port is None


@pytest.mark.parametrize("text", ["", "[]", "a: [", "\0"])
def test_a_file_that_is_no_mapping_is_refused_by_name(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"config\.yaml"):
        read_serve_file(path)


def test_the_installed_file_can_be_read():
    assert read_serve_file(default_config())["applications"][0]["import_path"]


def test_settings_travel_as_variables_and_the_last_one_counts():
    assert settings_environ(["a=1", "b.c = x=y", "a=2"]) == {
        "TEXTLANE_SERVE__A": "2",
        "TEXTLANE_SERVE__B__C": " x=y",
    }


@pytest.mark.parametrize("item", ["", "a", "=1", " =1", "a-b=1", "é=1", "a=\0", "a..b=1"])
def test_what_is_no_setting_is_refused(item):
    with pytest.raises(ConfigError, match="--set needs key=value"):
        settings_environ([item])


def test_a_mistake_in_a_set_is_told_as_one():
    settings = settings_environ(["foo=1"])

    message = in_words_of_the_command("environment TEXTLANE_SERVE__FOO: foo: unknown", settings)

    assert message == "--set: foo: unknown"


def test_the_port_for_releases_is_the_one_that_is_set_or_one_that_is_free(bundles, write_config):
    bare = write_config(bundle=str(bundles / "file"))
    in_file = {"bundle": str(bundles / "file"), "admin_port": 9003}
    environ = {"TEXTLANE_SERVE__ADMIN_PORT": "9002"}

    free = plan_serving(ServeOptions(config=bare), {})
    by_set = plan_serving(ServeOptions(config=bare, sets=("admin_port=9001",)), environ)
    by_environment = plan_serving(ServeOptions(config=bare), environ)
    any_port = plan_serving(ServeOptions(config=bare, sets=("admin_port=0",)), {})

    assert free.admin_port == free.config["applications"][0]["args"]["admin_port"] > 0
    assert (by_set.admin_port, by_environment.admin_port, any_port.admin_port) == (9001, 9002, None)
    assert plan_serving(ServeOptions(config=write_config(**in_file)), {}).admin_port == 9003
