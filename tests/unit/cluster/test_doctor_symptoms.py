"""Doctor's judgement of real services: recorded by `tests/drills/provoke.py --record`."""

from dataclasses import replace

import pytest
from drill_recording import read_recording
from drill_table import DRILLS

from cluster.doctor.diagnosis import diagnose
from cluster.doctor.observations import Observations
from cluster.doctor.samples import Sample, Scrape
from cluster.doctor.serving_view import observe_serving
from serve_app.rpc.predictor import PREDICT_METHOD

HEALTHY = "batch_not_forming.cured"


def findings_of(scrapes):
    return {f.symptom: f for f in diagnose(Observations(serving=observe_serving(scrapes)))}


def with_values(scrapes, name, value_of, **labels):
    """Return the scrapes with other values of a metric: a function of scrape number and value."""

    def change(number, sample):
        is_it = sample.name == name and labels.items() <= sample.labels.items()
        return replace(sample, value=value_of(number, sample.value)) if is_it else sample

    return [
        replace(scrape, samples=tuple(change(number, sample) for sample in scrape.samples))
        for number, scrape in enumerate(scrapes)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("symptom", DRILLS)
def test_a_provoked_symptom_is_named_and_no_longer_once_it_is_cured(symptom):
    assert symptom in findings_of(read_recording(f"{symptom}.sick"))
    assert symptom not in findings_of(read_recording(f"{symptom}.cured"))


@pytest.mark.slow
@pytest.mark.parametrize("symptom", DRILLS)
def test_a_finding_tells_figures_threshold_and_a_cure_without_gaps(symptom):
    finding = findings_of(read_recording(f"{symptom}.sick"))[symptom]

    assert finding.figures
    assert finding.threshold
    assert "{" not in finding.cure
    assert "textlane" in finding.cure


def test_a_service_under_a_usual_load_is_healthy():
    assert findings_of(read_recording(HEALTHY)) == {}


MEMORY = "ray_component_uss_bytes"
SHORT_LANE = "ray::ServeReplica:textlane:ShortLane"


def memory_of(megabytes):
    """Return scrapes in which the short lane has so many megabytes, one after the other."""
    scrapes = read_recording(HEALTHY)
    kept = [
        [s for s in scrape.samples if s.labels.get("Component") != SHORT_LANE] for scrape in scrapes
    ]
    labels = {"Component": SHORT_LANE, "ip": "127.0.0.1"}
    return [
        Scrape(
            time_s=10.0 * number,
            samples=(*kept[-1], Sample(name=MEMORY, labels=labels, value=value * 1e6)),
        )
        for number, value in enumerate(megabytes)
    ]


@pytest.mark.slow
def test_replica_memory_grows_is_named_with_its_growth_until_it_is_steady():
    growing = findings_of(memory_of([200, 210, 220, 230, 240]))

    finding = growing["replica_memory_grows"]
    assert finding.where == "textlane:ShortLane on 127.0.0.1"
    assert (finding.figures["first, MB"], finding.figures["last, MB"]) == (200.0, 240.0)
    assert "replica_memory_grows" not in findings_of(memory_of([240, 240, 240, 240, 240]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "megabytes",
    [
        [200, 240, 240],  # Too few readings.
        [200, 240, 241, 242, 243],  # One buffer.
        [200, 210, 205, 230, 245],  # It falls as well.
        [200, 205, 210, 215, 220],  # Little.
        [2000, 2010, 2020, 2030, 2040],  # Little beside what there is.
    ],
)
def test_other_growth_is_no_leak(megabytes):
    assert "replica_memory_grows" not in findings_of(memory_of(megabytes))


def test_memory_short_is_named_under_a_tenth_of_the_machine_and_not_over_it():
    scrapes, name = read_recording(HEALTHY), "ray_node_mem_available"

    short = findings_of(with_values(scrapes, name, lambda _, value: 0.05 * value))

    assert short["memory_short"].figures["available"] < 0.1
    assert short["memory_short"].figures["of it replicas' own, MB"] > 100
    assert "memory_short" not in findings_of(scrapes)


def test_requests_fail_is_named_by_outcome_and_not_for_the_senders_faults():
    scrapes, name = read_recording(HEALTHY), "ray_textlane_requests_total"
    labels = {"path": "/v1/predict", "lane": "short"}

    def failing(outcome, count):
        sample = Sample(name=name, labels={**labels, "outcome": outcome}, value=count)
        return [*scrapes[:-1], replace(scrapes[-1], samples=(*scrapes[-1].samples, sample))]

    finding = findings_of(failing("inference_failed", 500.0))["requests_fail"]

    assert finding.figures["inference_failed"] == 500
    assert findings_of(failing("inference_failed", 5.0)) == {}
    assert findings_of(failing("text_too_long", 500.0)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("symptom", DRILLS)
def test_texts_that_come_by_grpc_show_the_same_symptoms(symptom):
    def by_grpc(sample):
        is_http = sample.labels.get("path") == "/v1/predict"
        return replace(
            sample, labels={**sample.labels, "path": PREDICT_METHOD} if is_http else sample.labels
        )

    for kind in ("sick", "cured"):
        scrapes = read_recording(f"{symptom}.{kind}")
        moved = [replace(one, samples=tuple(map(by_grpc, one.samples))) for one in scrapes]

        assert findings_of(moved) == findings_of(scrapes)


def test_without_requests_the_whole_life_is_judged_and_no_rate():
    last = read_recording("padding_waste.sick")[-1]

    seen = observe_serving([last, replace(last, time_s=last.time_s + 20.0)])

    assert seen.basis == "the whole life of the service"
    assert {lane.busy_share for lane in seen.lanes.values()} == {None}
    assert "padding_waste" in findings_of([last, last])


def test_the_metrics_of_another_ray_are_not_judged():
    nothing = Scrape(time_s=0.0, samples=())
    other = Sample(name="ray_node_cpu_count", labels={"ip": "h"}, value=2.0)

    assert observe_serving([nothing, nothing]) is None
    assert observe_serving([nothing, Scrape(time_s=1.0, samples=(other,))]) is None
    assert diagnose(Observations()) == []
