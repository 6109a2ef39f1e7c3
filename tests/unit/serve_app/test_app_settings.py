"""What the application is built with; no Ray is started."""

import logging

import pytest
from bundles import write_tiny_bundle
from tuning_samples import tuning_for

from serve_app.app import build_app
from serve_app.tuning_file import tuning_path, write_tuning


@pytest.fixture
def bundle(tmp_path):
    return write_tiny_bundle(tmp_path / "bundle")


@pytest.fixture
def logged():
    """(level, line) of what Ray Serve would show."""
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append((record.levelname, record.getMessage()))

    logger, handler = logging.getLogger("ray.serve"), Keep()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


def settings_of(application):
    return application._bound_deployment.init_args[0]


def test_replicas_get_what_the_tuning_says_as_if_it_were_set(bundle, logged):
    write_tuning(tuning_path(bundle.folder), tuning_for(bundle))

    settings = settings_of(build_app({"bundle": str(bundle.folder), "max_batch_requests": 4}))

    assert (settings.threads_per_replica, settings.short_max_tokens) == (1, 5)
    assert (settings.max_batch_tokens, settings.max_batch_requests) == (48, 4)
    assert (settings.tuning, settings.bundle) == (None, str(bundle.folder))
    assert logged == [
        (
            "INFO",
            f"serving {bundle.version}/model.onnx with threads_per_replica 1 (tuning), "
            "short_max_tokens 5 (tuning), max_batch_tokens 48 (tuning), "
            "max_batch_requests 4 (setting)",
        )
    ]


def test_a_tuning_that_does_not_hold_is_logged_with_why_and_defaults_are_served(bundle, logged):
    stale = tuning_for(bundle).model_copy(update={"bundle_version": "old-1"})
    write_tuning(tuning_path(bundle.folder), stale)

    settings = settings_of(build_app({"bundle": str(bundle.folder)}))

    assert settings.max_batch_tokens == 512
    (warning, line) = logged
    assert warning[0] == "WARNING"
    assert "it is for another bundle: old-1" in warning[1]
    assert "textlane tune" in warning[1]
    assert "max_batch_tokens 512 (default)" in line[1]


def lane_of(application, name):
    return application._bound_deployment.init_kwargs[name]._bound_deployment


def test_a_lane_has_so_many_replicas_or_scales_between_two_numbers(bundle):
    application = build_app(
        {"bundle": str(bundle.folder), "short_replicas": [1, 3], "long_replicas": 2}
    )

    short, long = lane_of(application, "short"), lane_of(application, "long")
    scaling = short._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (1, 3)
    assert scaling.policy.policy_kwargs == {"up_delay_s": 10.0, "down_delay_s": 300.0}
    assert (long.num_replicas, long._deployment_config.autoscaling_config) == (2, None)
