"""An application whose lanes wait at a gate and write down the limits they are given.

A file deploys it by ``import_path``, so that Ray Serve builds it as it does a user's.
"""

import json
import os
from pathlib import Path
from unittest.mock import patch

from gated_lane import GatedLane

import serve_app.app
import serve_app.lane_deployment

LIMITS = "limits"


class LiveLane(GatedLane):
    """Writes a line for each ``user_config`` that it took up."""

    async def reconfigure(self, user_config):
        await super().reconfigure(user_config)
        with (Path(self._settings.bundle).parent / LIMITS).open("a") as file:
            taken = self._batcher.limits.max_batch_requests
            file.write(json.dumps([os.getpid(), taken]) + "\n")


def build_app(args):
    """Return the real application around such lanes."""
    with patch.object(serve_app.lane_deployment, "Lane", LiveLane):
        return serve_app.app.build_app(args)
