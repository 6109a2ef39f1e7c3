"""The picture of a lane's replicas and the cluster's nodes over time."""

from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Sample:
    """What ran at one moment."""

    at_s: float
    num_replicas: int
    num_nodes: int


def draw(samples, path, *, load):
    """Write an SVG; ``load`` is from when to when there was any."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(*load, color="0.92", label="load")
    seconds = [one.at_s for one in samples]
    axes.step(seconds, [one.num_replicas for one in samples], where="post", label="short replicas")
    nodes = [one.num_nodes for one in samples]
    axes.step(seconds, nodes, where="post", label="nodes beside the head", linestyle="--")
    axes.set(xlabel="seconds", ylim=(0, None))
    axes.yaxis.get_major_locator().set_params(integer=True)
    figure.legend(loc="outside upper center", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
