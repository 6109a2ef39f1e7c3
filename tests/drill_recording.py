"""Scrapes of a real run in a small file, so that unit tests judge what Ray really says."""

import gzip
from pathlib import Path

from drill_table import DRILLS

from cluster.doctor.diagnosis import diagnose
from cluster.doctor.observations import Observations
from cluster.doctor.report import format_findings
from cluster.doctor.samples import Sample, Scrape, read_samples, write_samples
from cluster.doctor.serving_view import observe_serving

FOLDER = Path(__file__).parent / "assets" / "doctor"
_MARK = "# at "


def recording_path(name):
    return FOLDER / f"{name}.txt.gz"


def write_recording(path, scrapes):
    # A zero says nothing but of a setting, and a worker's name is 56 digits.
    text = "".join(
        f"{_MARK}{scrape.time_s - scrapes[0].time_s:.3f}\n"
        + write_samples(map(_shorten, filter(_says_something, scrape.samples)))
        for scrape in scrapes
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_recording(name):
    text = gzip.decompress(recording_path(name).read_bytes()).decode()
    scrapes = []
    for part in text.split(_MARK)[1:]:
        time_s, _, lines = part.partition("\n")
        samples = tuple(read_samples(lines, place=name))
        scrapes.append(Scrape(time_s=float(time_s), samples=samples))
    return scrapes


def _says_something(sample):
    component = sample.labels.get("Component", "")
    is_ours = not sample.name.startswith("ray_component_") or "ServeReplica" in component
    return is_ours and (sample.value != 0 or sample.name == "ray_textlane_setting")


def _shorten(sample):
    labels = dict(sample.labels)
    if "WorkerId" in labels:
        labels["WorkerId"] = labels["WorkerId"][:6]
    return Sample(name=sample.name, labels=labels, value=sample.value)


def build_transcripts():
    """Return ``docs/doctor_transcripts.md``: what doctor says of each recording."""
    parts = [
        "# What doctor says\n\nOf real services that were recorded by `python "
        "tests/drills/provoke.py all --bundle BUNDLE --record` on\n2 cores, MiniLM INT8 but for "
        "front_door; each sick on purpose and then cured. Made by `--transcripts`.\n"
    ]
    for name, drill in DRILLS.items():
        for kind, state in (("sick", drill.sick), ("cured", drill.cured)):
            seen = Observations(serving=observe_serving(read_recording(f"{name}.{kind}")))
            text = "\n".join([f"$ {state.command}", format_findings(seen, diagnose(seen))])
            lines = [f"    {line}".rstrip() for line in text.splitlines()]
            parts.append("\n".join([f"## {name}, {kind}", "", *lines, ""]))
    return "\n".join(parts)
