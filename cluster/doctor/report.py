"""Findings and the table of symptoms as text, JSON and Markdown; pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby

from cluster.doctor.diagnosis import SYMPTOMS
from cluster.doctor.observations import Observations
from cluster.doctor.symptom import Finding

_HEAD = """\
# Runbook

`textlane doctor` names which of these symptoms is present, with its figures and the cure. This page
is made from the same table (`textlane doctor --runbook > docs/runbook.md`); edit the table in
`cluster/doctor/`. Metrics bear the prefix `ray_`, counters the ending `_total`
(serve_app/METRICS.md).

    textlane doctor                                  # the service on this machine, for 20 s
    textlane doctor --url http://HOST:8000 --metrics http://HOST:PORT/metrics
    textlane doctor --checkpoint outputs/JOB/checkpoint --bundle outputs/JOB/bundle

Exit status: 0 healthy, 1 a symptom is present, 2 it could not look. Commands under "provoke" bring
a symptom about on purpose and cure it; run them in a checkout.
"""


def format_findings(seen: Observations, findings: Sequence[Finding]) -> str:
    """Return what a person reads."""
    lines = [*_describe_looked_at(seen), *(f"note: {note}" for note in seen.notes)]
    for finding in findings:
        figures = ", ".join(f"{name} {_number(value)}" for name, value in finding.figures.items())
        lines += [
            "",
            f"{finding.symptom}, {finding.where}: {finding.seen}",
            f"  evidence:  {figures}",
            f"  threshold: {finding.threshold}",
            f"  cure:      {finding.cure}",
            f"  why:       {finding.why}",
        ]
    lines += ["", _count(len(findings))]
    return "\n".join(map(_printable, lines))


def format_json(seen: Observations, findings: Sequence[Finding]) -> str:
    """Return findings, notes and everything that was observed as one JSON object."""
    content = {
        "findings": [asdict(finding) for finding in findings],
        "notes": list(seen.notes),
        "observations": asdict(seen),
    }
    return json.dumps(content, ensure_ascii=False, allow_nan=False, indent=2)


def build_runbook() -> str:
    """Return ``docs/runbook.md``."""
    parts = [_HEAD]
    areas = sorted({s.area for s in SYMPTOMS}, key=[s.area for s in SYMPTOMS].index)
    ordered = sorted(SYMPTOMS, key=lambda symptom: areas.index(symptom.area))
    for area, symptoms in groupby(ordered, key=lambda symptom: symptom.area):
        parts.append(f"## {area}\n")
        for symptom in symptoms:
            parts.append(
                f"### {symptom.name}\n\n{symptom.seen}\n\n"
                f"- evidence: {symptom.evidence}\n"
                f"- threshold: {symptom.threshold}. {symptom.chosen}\n"
                f"- cure: `{_plain(symptom.cure, symptom.cure_example)}`. {symptom.why}\n"
                f"- provoke: `{symptom.drill}`\n"
            )
    return "\n".join(parts)


def _plain(cure: str, example: Mapping[str, object]) -> str:
    return cure.format(**example).replace("`", "")


def _describe_looked_at(seen: Observations) -> Iterator[str]:
    if seen.serving is not None:
        serving = seen.serving
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(serving.outcomes.items()))
        yield f"service, {serving.basis}: {serving.num_requests} requests ({outcomes or 'none'})"
        for name, lane in serving.lanes.items():
            if lane.rows:
                busy = "" if lane.busy_share is None else f", busy {_number(lane.busy_share)}"
                p99 = "" if lane.p99_s is None else f", P99 {_number(lane.p99_s)} s"
                padding = _number(1.0 - lane.real_tokens / max(lane.padded_tokens, 1))
                work = f"{lane.rows} texts in {lane.runs} runs, padding {padding}"
                yield f"  {name} lane: {work}{busy}{p99}"
    if seen.training is not None:
        yield (
            f"training in {seen.training.folder}: {seen.training.steps} steps, "
            f"{len(seen.training.events)} events, {seen.training.spoilt_lines} unreadable lines"
        )
    if seen.quality is not None:
        accuracy = ", ".join(f"{k} {_number(v)}" for k, v in seen.quality.accuracy.items())
        yield f"quality of {seen.quality.served}: accuracy {accuracy or 'not recorded'}"


def _printable(line: str) -> str:
    """Escape what would steer a terminal: a server or a file may have sent it."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in line
    )


def _count(number: int) -> str:
    if number == 0:
        return "healthy: no known symptom"
    return f"{number} {'symptom is' if number == 1 else 'symptoms are'} present"


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
