"""What an ingress counts of a release, and in which words it tells the desk."""

import pytest

from serve_app.release.report import MAX_COMPARISONS, MAX_LATENCIES, Comparison, Feedback
from serve_app.release.traffic import MAX_FEEDBACK, TrafficLog
from serve_app.request_record import RequestRecord

PATH = "/v1/predict"


def record(status=200, *, version="v1", lane="short", total_ms=10.0, code="ok", **facts):
    return RequestRecord(
        path=facts.pop("path", PATH),
        method="POST",
        version=version,
        lane=lane,
        status=status,
        code=code,
        total_ms=total_ms,
        **facts,
    )


def open_log():
    log = TrafficLog(predict_paths=(PATH,), seed=1)
    log.is_open = True
    return log


def report_of(log):
    return log.take_report(reporter="one", sequence=1, table_number=2)


def comparison(number=0):
    return Comparison(
        request_id=f"r{number}",
        lane="short",
        num_tokens=3,
        stable_label="a",
        candidate_label="b",
        stable_score=0.9,
        candidate_score=0.8,
        shift=0.5,
        stable_ms=1.0,
        candidate_ms=2.0,
    )


def test_requests_are_counted_by_version_and_lane_with_their_times():
    log = open_log()
    for total_ms in (1.0, 2.0):
        log.observe_request(record(total_ms=total_ms))
    log.observe_request(record(version="v2", lane="long"))
    log.observe_request(record(500, version="v2", code="inference_failed"))

    report = report_of(log)

    assert (report.reporter, report.sequence, report.table_number) == ("one", 1, 2)
    cells = {(cell.version, cell.lane): cell for cell in report.cells}
    assert cells["v1", "short"].latencies_ms == [1.0, 2.0]
    assert (cells["v2", "long"].num_requests, cells["v2", "long"].num_errors) == (1, 0)
    failed = cells["v2", "short"]
    assert (failed.num_requests, failed.num_errors, failed.latencies_ms) == (1, 1, [])
    assert report_of(log).cells == []


@pytest.mark.parametrize(
    "other",
    [
        record(400, code="invalid_request"),
        record(422, code="too_many_tokens"),
        record(429, code="overloaded"),
        record(499, code="client_gone"),
        record(503, lane="", code="not_ready"),
        record(path="/readyz"),
    ],
)
def test_what_says_nothing_about_a_version_is_not_counted(other):
    log = open_log()

    log.observe_request(other)

    assert report_of(log).cells == []


def test_a_list_of_which_a_good_text_failed_is_an_error():
    log = open_log()

    log.observe_request(record(num_failed=2, num_let_down=1))
    log.observe_request(record(num_failed=1))

    (cell,) = report_of(log).cells
    assert (cell.num_requests, cell.num_errors) == (2, 1)


def test_calls_that_found_no_replica_are_told_apart():
    log = open_log()

    log.observe_request(record(503, version="v2", code="not_ready"))
    log.observe_request(record(504, version="v1", code="deadline_exceeded"))

    assert report_of(log).crashed_versions == {"v2": 1}


def test_without_a_release_nothing_is_kept():
    log = TrafficLog(predict_paths=(PATH,))

    log.observe_request(record())
    log.add_feedback(Feedback(version="v1", is_right=True, request_id="r"))

    report = report_of(log)
    assert (report.cells, report.feedback) == ([], [])


def test_memory_is_bounded_and_times_are_a_sample_of_all():
    log = open_log()
    for number in range(20 * MAX_LATENCIES):
        log.observe_request(record(total_ms=float(number)))
    for number in range(MAX_COMPARISONS + 3):
        log.add_comparison(comparison(number))
    log.drop_comparisons(4)
    for _ in range(MAX_FEEDBACK + 1):
        log.add_feedback(Feedback(version="v1", is_right=True, request_id="r"))

    report = report_of(log)

    (cell,) = report.cells
    assert cell.num_requests == 20 * MAX_LATENCIES
    assert len(cell.latencies_ms) == MAX_LATENCIES
    mean = sum(cell.latencies_ms) / MAX_LATENCIES
    # Mean of all is 10 × MAX_LATENCIES; five standard errors of a uniform sample.
    assert mean == pytest.approx(10 * MAX_LATENCIES, rel=5 * 0.577 / MAX_LATENCIES**0.5)
    assert (len(report.comparisons), report.num_dropped_comparisons) == (MAX_COMPARISONS, 7)
    assert len(report.feedback) == MAX_FEEDBACK
