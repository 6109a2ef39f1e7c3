"""How each symptom of serving is provoked and cured: what is served, and under which load."""

from dataclasses import dataclass, field

SHORT, LONG, MIXED = "1:5-20", "1:280-350", "90:5-20,10:350-450"
# Less apart than a run costs, so that serving puts them together where it has no choice.
TWO_LENGTHS = "50:1-1,50:18-20"
# Long enough that a burst waits for the model: short ones wait at the ingress, 2 ms each.
MIDDLING = "1:40-60"
# Thirty texts a second, and four times 60 that come together.
CALM = [number / 30 for number in range(540)]
BURSTS = tuple(
    sorted(CALM + [4.0 * burst + 0.0005 * text for burst in range(4) for text in range(60)])
)


@dataclass(frozen=True, kw_only=True)
class State:
    """One way to serve, and the load on it."""

    options: tuple[str, ...] = ()
    """Of `textlane serve`."""
    environ: dict[str, str] = field(default_factory=dict)
    load: tuple[str, ...] = ("--connections", "32", "--mix", SHORT)
    """Of `textlane load`; none: no load."""
    arrivals: tuple[float, ...] = ()
    """Seconds at which texts are sent instead."""

    @property
    def command(self):
        """What a person would type."""
        environ = [f"{name}={value}" for name, value in self.environ.items()]
        load = "30 texts/s and bursts of 60" if self.arrivals else " ".join(self.load) or "none"
        return " ".join([*environ, "textlane serve", *self.options, f"  # load: {load}"])


@dataclass(frozen=True, kw_only=True)
class Drill:
    """A symptom on purpose."""

    sick: State
    cured: State
    has_tiny_bundle: bool = False
    """A model that takes no time shows what else does."""


def sets(*settings):
    return tuple(word for setting in settings for word in ("--set", setting))


HEALTHY = State()
DRILLS = {
    "batch_not_forming": Drill(
        sick=State(options=sets("max_batch_requests=1")),
        cured=HEALTHY,
    ),
    "padding_waste": Drill(
        sick=State(
            options=sets("max_batch_requests=2", "window_batches=1"),
            load=("--connections", "32", "--mix", TWO_LENGTHS),
        ),
        cured=State(load=("--connections", "32", "--mix", TWO_LENGTHS)),
    ),
    "too_few_threads": Drill(
        sick=State(
            options=sets("threads_per_replica=1"), load=("--connections", "8", "--mix", LONG)
        ),
        cured=State(
            options=sets("threads_per_replica=2"), load=("--connections", "8", "--mix", LONG)
        ),
    ),
    "machine_full": Drill(
        # More than FP32 can do, and less than INT8.
        sick=State(
            options=sets("model=model.onnx", "threads_per_replica=2"),
            load=("--rate", "26", "--mix", LONG),
        ),
        cured=State(options=sets("threads_per_replica=2"), load=("--rate", "26", "--mix", LONG)),
    ),
    "front_door": Drill(
        sick=State(load=("--connections", "64", "--mix", "1:150-200")),
        cured=State(
            options=sets("ingress_replicas=2"), load=("--connections", "64", "--mix", "1:150-200")
        ),
        has_tiny_bundle=True,
    ),
    "queue_refuses": Drill(
        sick=State(options=sets("max_queued_requests=8", "max_texts_per_request=8")),
        cured=HEALTHY,
    ),
    "long_texts": Drill(
        sick=State(options=sets("short_max_tokens=510"), load=("--rate", "120", "--mix", MIXED)),
        cured=State(options=sets("short_max_tokens=64"), load=("--rate", "120", "--mix", MIXED)),
    ),
    "burst": Drill(
        sick=State(arrivals=BURSTS, load=("--mix", MIDDLING)),
        cured=State(
            options=sets("max_queued_requests=16", "max_texts_per_request=16"),
            arrivals=BURSTS,
            load=("--mix", MIDDLING),
        ),
    ),
    "cold_replica": Drill(
        sick=State(
            options=sets("short_replicas=[1,2]", "scale_up_delay_s=1"),
            load=("--connections", "200", "--mix", SHORT),
        ),
        cured=State(
            options=sets("short_replicas=2"), load=("--connections", "200", "--mix", SHORT)
        ),
    ),
    "slow_cold_start": Drill(
        sick=State(
            options=sets("max_batch_tokens=16384", "max_batch_requests=32", "model=model.onnx"),
            load=(),
        ),
        cured=State(options=sets("model=model.onnx"), load=()),
    ),
    "haproxy_off": Drill(sick=State(options=("--no-haproxy",)), cured=HEALTHY),
    "throughput_off": Drill(
        sick=State(environ={"RAY_SERVE_THROUGHPUT_OPTIMIZED": "0"}), cured=HEALTHY
    ),
    "threads_oversubscribed": Drill(
        sick=State(options=sets("threads_per_replica=8")), cured=HEALTHY
    ),
}
