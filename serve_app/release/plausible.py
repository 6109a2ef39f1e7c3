"""Finds what cannot be in a report: a fault of the source, not of a version."""

import math

from serve_app.release.report import MAX_COMPARISONS, MAX_LATENCIES, Comparison, IngressReport


def find_fault(report: IngressReport) -> str | None:
    """Return what contradicts itself in a report; None: nothing."""
    for cell in report.cells:
        place = f"{cell.version} {cell.lane}"
        if not 0 <= cell.num_errors <= cell.num_requests:
            return f"{place}: {cell.num_errors} errors in {cell.num_requests} requests"
        if len(cell.latencies_ms) > min(MAX_LATENCIES, cell.num_requests - cell.num_errors):
            return f"{place}: {len(cell.latencies_ms)} times of {cell.num_requests} requests"
        if not all(_is_time(value) for value in cell.latencies_ms):
            return f"{place}: a time is negative or no number"
    if len(report.comparisons) > MAX_COMPARISONS or report.num_dropped_comparisons < 0:
        return f"{len(report.comparisons)} comparisons"
    if not all(_is_sound(item) for item in report.comparisons):
        return "a comparison's figures are negative or no numbers"
    for profile in report.profiles:
        counts = (*profile.length_counts, *profile.confidence_counts)
        if min((*counts, *profile.label_counts.values()), default=0) < 0:
            return f"{profile.version}: a count of its profile is negative"
        if not 0 <= profile.num_unknown_tokens <= profile.num_tokens:
            return f"{profile.version}: {profile.num_unknown_tokens} unknown tokens"
    if any(count < 0 for count in report.crashed_versions.values()):
        return "a count of crashes is negative"
    return None


def _is_time(value: float) -> bool:
    return math.isfinite(value) and value >= 0.0


def _is_sound(item: Comparison) -> bool:
    figures = (item.stable_score, item.candidate_score, item.shift, item.num_tokens)
    times = (item.stable_ms, item.candidate_ms)
    return all(map(_is_time, (*figures, *times)))
