"""Hosts for the drills, where this machine allows them."""

import pytest
from network import network, why_not_allowed


@pytest.fixture
def hosts():
    """Three hosts on one network: a head's and two for work."""
    reason = why_not_allowed()
    if reason:
        pytest.skip(reason)
    with network(3) as hosts:
        yield hosts
