"""One local Ray for all integration tests, always shut down."""

import pytest

from pipeline.config import RaySettings
from pipeline.ray_session import ray_session


@pytest.fixture(scope="session")
def ray_cluster():
    with ray_session(RaySettings(num_cpus=4)):
        yield
