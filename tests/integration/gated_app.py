"""The application around lanes that wait at a gate, on real Ray Serve, and a client of it."""

from contextlib import contextmanager

import gated_lane
import httpx
import pytest
from gated_lane import GatedLane
from ray import cloudpickle
from test_serve_ray import free_port


@contextmanager
def gated_client(folder, *, num_connections=100, **settings):
    """Serve the bundle of a folder; yield a client, and shut Ray Serve down at the end."""
    from ray import serve

    import serve_app.app
    import serve_app.lane_deployment

    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
    # Replicas do not find the tests' folders.
    cloudpickle.register_pickle_by_value(gated_lane)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve_app.lane_deployment, "Lane", GatedLane)
        application = serve_app.app.build_app(
            {
                "bundle": str(folder / "bundle"),
                "threads_per_replica": 1,
                "admin_port": 0,
                **settings,
            }
        )
    try:
        serve.run(application, name="gated", route_prefix="/")
        limits = httpx.Limits(max_connections=num_connections)
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=120.0, limits=limits) as client:
            yield client
    finally:
        serve.shutdown()
        cloudpickle.unregister_pickle_by_value(gated_lane)
