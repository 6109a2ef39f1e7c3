"""What may change while a replica runs, and what is refused in which words."""

import pytest
from bundles import write_tiny_bundle

from pipeline.contract.errors import ConfigError
from serve_app.config import ServeSettings
from serve_app.live_settings import (
    INGRESS_LIVE,
    LANE_LIVE,
    LIVE_NAMES,
    check_deployments,
    live_values,
    with_live_values,
)

BUILT = ServeSettings(
    bundle="/bundle",
    max_batch_tokens=512,
    max_batch_requests=32,
    max_queued_requests=64,
    api_keys=["a-long-random-key"],
)


def test_what_is_given_replaces_what_was_built_and_the_rest_stays():
    given = {"max_batch_requests": 8, "wait_when_idle": True, "max_batch_tokens": None}

    settings = with_live_values(BUILT, given, names=LANE_LIVE)

    changes = {"max_batch_requests": 8, "wait_when_idle": True}
    assert settings == BUILT.model_copy(update=changes)


@pytest.mark.parametrize("names", [LANE_LIVE, INGRESS_LIVE])
def test_the_values_that_an_application_binds_change_nothing(names):
    assert with_live_values(BUILT, live_values(BUILT, names), names=names) == BUILT
    assert with_live_values(BUILT, {}, names=names) == BUILT


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        (LANE_LIVE, {"max_batch_tokenz": 8}, "user_config: max_batch_tokenz: unknown setting"),
        (LANE_LIVE, {"max_batch_requests": "8"}, r"max_batch_requests: .*integer"),
        (LANE_LIVE, {"window_batches": 0}, r"window_batches: .*greater than or equal to 1"),
        (LANE_LIVE, {"max_batch_requests": 65}, "max_batch_requests 65 is over max_queued_req"),
        (LANE_LIVE, {"batch_wait_timeout_ms": 9e9}, "not under request_timeout_s 30"),
        (LANE_LIVE, {"log_texts": True}, "log_texts: this deployment cannot change it"),
        (INGRESS_LIVE, {"bundle": "/b"}, r"cannot change it while it runs.*under args"),
        (INGRESS_LIVE, {"max_queued_requests": 65}, "over 64, which the application was built"),
        (INGRESS_LIVE, {"on_too_long": "drop"}, "on_too_long: .*truncate"),
        (LANE_LIVE, [8], "user_config: it must be a mapping"),
        (LANE_LIVE, None, "user_config: it must be a mapping"),
    ],
)
def test_what_cannot_be_is_refused_by_name(names, given, message):
    with pytest.raises(ConfigError, match=message):
        with_live_values(BUILT, given, names=names)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("live") / "bundle")


def test_what_may_change_passes_and_other_keys_of_an_entry_are_left_to_ray(bundle):
    check_deployments(BUILT, bundle, [])
    check_deployments(
        BUILT,
        bundle,
        [
            {"name": "ShortLane", "num_replicas": 2},
            {"name": "LongLane", "user_config": {"max_batch_requests": 8}},
            {"name": "Ingress", "user_config": None},
            {"name": "Ingress", "user_config": {"log_texts": True}},
            {"name": "ReleaseDesk", "ray_actor_options": {"num_cpus": 0.1}, "user_config": {}},
        ],
    )


@pytest.mark.parametrize(
    ("deployments", "message"),
    [
        ({}, "deployments: it must be a list"),
        ("ShortLane", "deployments: it must be a list"),
        ([1], "deployments: each entry needs the name of a deployment .got 1.*or LongLane"),
        ([{}], "deployments: each entry needs the name"),
        ([{"name": "ShortLan"}], r"got 'ShortLan'\)\. Write `name: ShortLane`"),
        ([{"name": None, "user_config": {}}], "each entry needs the name"),
        ([{"name": "ShortLane", "user_config": [1]}], "ShortLane: user_config: it must be a map"),
        (
            [{"name": "ShortLane", "user_config": {"max_batch_request": 1}}],
            "deployments: ShortLane: user_config: max_batch_request: unknown setting",
        ),
        (
            [{"name": "Ingress"}, {"name": "LongLane", "user_config": {"window_batches": "8"}}],
            "deployments: LongLane: user_config: window_batches: .*integer",
        ),
        (
            [{"name": "ShortLane", "user_config": {"log_texts": True}}],
            "ShortLane: user_config: log_texts: this deployment cannot change it",
        ),
        (
            [{"name": "ReleaseDesk", "user_config": {"log_texts": True}}],
            "ReleaseDesk: user_config: log_texts: .*It takes none here",
        ),
        (
            [{"name": "ReleaseDesk", "user_config": [1]}],
            "ReleaseDesk: user_config: it must be a map.*here none may stand",
        ),
        (
            [{"name": "ShortLane", "user_config": {"max_batch_tokens": 4}}],
            "ShortLane: user_config: max_batch_tokens 4 is under the bundle's max_seq_len",
        ),
    ],
    ids=str,
)
def test_what_a_file_asks_of_deployments_is_refused_by_place(bundle, deployments, message):
    with pytest.raises(ConfigError, match=message):
        check_deployments(BUILT, bundle, deployments)


def test_the_names_are_those_of_the_application(bundle):
    from serve_app.app import build_app

    root = build_app({"bundle": str(bundle.folder)})._bound_deployment
    others = [root.init_kwargs[bound]._bound_deployment.name for bound in ("short", "long", "desk")]

    assert {root.name, *others} == set(LIVE_NAMES)
