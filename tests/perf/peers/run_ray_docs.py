"""Starts the documentation's application on a port of this machine, until a signal."""

import signal
import sys

import ray
from ray import serve
from ray_docs import application

if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(application)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.pause()
    serve.shutdown()
    ray.shutdown()
