"""Reports figures to a running Ray as a training does, until its input ends; run as a program."""

import sys
import threading

import ray

from pipeline.train.figures import FIGURES, SKIPPED_STEPS
from pipeline.train.ray_metrics import RayMetricsSink


def main():
    ray.init(logging_level="warning", log_to_driver=False)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    sink = RayMetricsSink("monitored")
    step = 0
    while not over.wait(1.0):
        step += 1
        figures = {figure.name: 0.5 for figure in FIGURES} | {SKIPPED_STEPS.name: float(step)}
        sink.write_figures(figures, step=step)
    ray.shutdown()


if __name__ == "__main__":
    main()
