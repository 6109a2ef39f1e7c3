"""Trains on a Ray of its own whose only node is taken away while it works; run as a program."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from test_train_ray import build_job, write_shards

from pipeline.config import RaySettings
from pipeline.ray_session import ray_session
from pipeline.train.events import read_events
from pipeline.train.history import read_latest_records
from pipeline.train.run import train

PREEMPTION = 2  # DRAIN_NODE_REASON_PREEMPTION in Ray's autoscaler.proto.


def wait_for(is_there):
    deadline = time.monotonic() + 120
    while not is_there() and time.monotonic() < deadline:
        time.sleep(0.05)


def take_the_node_away(folder):
    import ray
    from ray._raylet import GcsClient

    wait_for(lambda: read_latest_records(folder))
    context = ray.get_runtime_context()
    in_ten_minutes_ms = int(time.time() * 1000) + 600_000
    GcsClient(address=context.gcs_address).drain_node(
        context.get_node_id(), PREEMPTION, "taken away by the test", in_ten_minutes_ms
    )
    wait_for(lambda: any(event.kind == "preempted" for event in read_events(folder)))
    os.kill(os.getpid(), signal.SIGINT)


def main(folder):
    # A shell starts background jobs with it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    job = build_job(folder, epochs=100_000, checkpoint_every_steps=10**6, validate_every_steps=0)
    write_shards(job)
    thread = threading.Thread(target=take_the_node_away, args=(job.checkpoint_dir,), daemon=True)
    with ray_session(RaySettings(num_cpus=2)):
        thread.start()
        try:
            train(job)
        except KeyboardInterrupt:
            print("stopped")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
