"""report.html: one self-contained page, from plain figures and finished charts."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from pipeline.drawing import Chart
from pipeline.evaluate.training_log import figure_name
from pipeline.model.checkpoint_manifest import FINAL
from pipeline.quality import accuracy_name

_TEMPLATE_NAME = "report.html.jinja"
_NOT_LUCK = 0.05
_MAX_CONFUSIONS = 10


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The page's first sentence, its second, and how it compares with the baseline."""

    headline: str
    detail: str
    tone: str
    """``better``, ``even``, ``worse``, or ``plain`` when there is no baseline."""


@dataclass(frozen=True, kw_only=True)
class ReportContent:
    """Everything that the page shows."""

    name: str
    """Name of the job."""
    metrics: dict[str, Any]
    """As in metrics.json."""
    quality_charts: Sequence[Chart]
    training_charts: Sequence[Chart]
    """Empty when no step was taken."""
    data_charts: Sequence[Chart]
    events: Sequence[tuple[str, str, str, str]]
    """What happened in training: (step, time in UTC, kind, message), oldest first."""
    passed_over: Sequence[str]
    """Lines of the training's logs that could not be read, such as ``2 lines of history.jsonl``."""
    data: Sequence[tuple[str, str]]
    """What was read, kept and rejected: (what, figure)."""
    origin: Sequence[tuple[str, str]]
    """Fingerprints and versions: (what, value)."""
    settings: Sequence[tuple[str, str]]
    """Every setting of the job: (dotted field, value)."""


def render_report(content: ReportContent) -> str:
    """Return the page; every text in it is escaped, and it loads nothing from a network."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["percent"] = _percent
    environment.filters["breakable"] = _breakable
    # The SVG is matplotlib's own output, where it has escaped every label.
    environment.filters["finished_svg"] = Markup
    source = files("pipeline.evaluate").joinpath(_TEMPLATE_NAME).read_text(encoding="utf-8")
    metrics = content.metrics
    return environment.from_string(source).render(
        content=content,
        metrics=metrics,
        verdict=build_verdict(metrics),
        tiles=_build_tiles(metrics),
        unit=answer_unit(metrics),
        weights=describe_weights(metrics["checkpoint"], measure=accuracy_name(metrics["task"])),
        measure=accuracy_name(metrics["task"]),
        classes=sorted(metrics["per_class"], key=lambda row: (row["f1"], row["label"])),
        confusions=_top_confusions(metrics),
    )


def answer_unit(metrics: dict[str, Any]) -> str:
    """Return what an answer is about, in the plural."""
    return "words" if metrics["task"] == "token_classification" else "texts"


def describe_weights(weights: dict[str, Any], *, measure: str) -> str:
    """Return in words which of the training's weights were measured.

    Args:
        weights: ``checkpoint`` of metrics.json.
        measure: what accuracy is called for this task.
    """
    is_last = weights["step"] == weights["total_steps"] or weights["kind"] == FINAL
    which = "last weights" if is_last else "weights"
    if weights["is_best"]:
        which = f"best weights by validation {figure_name(weights['best_metric'], measure=measure)}"
        which += ", which are also the last" if is_last else ""
    text = f"Measured: the {which}, after step {weights['step']:,} of {weights['total_steps']:,}"
    found = weights["validation"]
    if found is None:
        return f"{text}."
    figures = [f"loss {found['loss']:.3f}", f"{measure} {_percent(found['accuracy'])}"]
    if found["entity_f1"] is not None:
        figures.append(f"entity F1 {_percent(found['entity_f1'])}")
    return f"{text}. On the validation rows they gave {', '.join(figures)}."


def build_verdict(metrics: dict[str, Any]) -> Verdict:
    """Return what the figures say, in words, luck considered."""
    share, count = _percent(metrics["accuracy"]), f"{metrics['scored']:,}"
    are_right = "have exactly the right labels" if _is_multi_label(metrics) else "are right"
    headline = f"{share} of {count} test {answer_unit(metrics)} {are_right}"
    baseline = metrics["baseline"]
    if baseline is None:
        low, high = metrics["accuracy_95"]
        detail = f"95 % interval {_percent(low)} to {_percent(high)}; no baseline was asked for."
        return Verdict(headline=headline, detail=detail, tone="plain")
    points = 100 * (metrics["accuracy"] - baseline["accuracy"])
    rival = f"{baseline['name']} ({_percent(baseline['accuracy'])})"
    p_value = baseline["p_value"]
    shown_p = "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    if p_value >= _NOT_LUCK:
        lead = f"{abs(points):.1f} points {'above' if points >= 0 else 'below'} {rival}"
        detail = f"{lead} on the same rows, which may be luck ({shown_p})."
        return Verdict(headline=headline, detail=detail, tone="even")
    lead = f"{abs(points):.1f} points {'above' if points > 0 else 'below'} {rival}"
    detail = f"{lead} on the same rows, which is more than luck ({shown_p})."
    return Verdict(headline=headline, detail=detail, tone="better" if points > 0 else "worse")


def _build_tiles(metrics: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (name, figure, explanation) of the numbers beside the verdict."""
    low, high = metrics["accuracy_95"]
    name = accuracy_name(metrics["task"]).capitalize()
    tiles = [(name, _percent(metrics["accuracy"]), f"95 %: {_percent(low)}–{_percent(high)}")]
    if _is_multi_label(metrics):
        why = "every label given or left out, over all texts"
        tiles.append(("Micro F1", _percent(metrics["micro_f1"]), why))
    baseline, entities = metrics["baseline"], metrics["entity_f1"]
    if baseline is not None:
        tiles.append(("Baseline", _percent(baseline["accuracy"]), baseline["name"]))
    if entities is not None:
        explanation = f"{entities['support']:,} entities, type and both ends right"
        tiles.append(("Entity F1", _percent(entities["f1"]), explanation))
    tiles.append(("Macro F1", _percent(metrics["macro_f1"]), "all classes weigh the same"))
    if metrics["calibration_error"] is not None:
        why = "mean gap between confidence and share right"
        if _is_multi_label(metrics):
            why += ", labels given"
        tiles.append(("Calibration error", _percent(metrics["calibration_error"]), why))
    return tiles


def _top_confusions(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    labels = [row["label"] for row in metrics["per_class"]]
    if len(labels) <= 2 or metrics["confusion"] is None:
        return []
    found = [
        {"true": labels[row], "predicted": labels[column], "count": count}
        for row, counts in enumerate(metrics["confusion"])
        for column, count in enumerate(counts)
        if row != column and count
    ]
    return sorted(found, key=lambda item: -int(item["count"]))[:_MAX_CONFUSIONS]


def _is_multi_label(metrics: dict[str, Any]) -> bool:
    return bool(metrics["task"] == "multi_label_classification")


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _breakable(label: str) -> Markup:
    """Return a label that a narrow column breaks at underscores before anywhere else."""
    return escape(label).replace("_", Markup("_<wbr>"))
