"""Laws of the state machine, over any order of what can happen."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from release_reports import (
    CANDIDATE,
    STABLE,
    START,
    THIRD,
    Traffic,
    cell,
    fresh_evidence,
    quick_plan,
    report,
    running_state,
)

from pipeline.contract.errors import ReleaseConflictError
from serve_app.release.check_result import Verdict
from serve_app.release.decide import checks_waited_for, decide
from serve_app.release.record import Outcome, describe_record, without_texts
from serve_app.release.state import (
    Phase,
    ReleaseState,
    end_release,
    new_state,
    note_deployed,
    pause_release,
    promote_release,
    reconcile_base,
    resume_release,
    routing_table,
    start_release,
    take_step,
)
from serve_app.release.store import ReleaseStore

ADAPTER = TypeAdapter(ReleaseState)
VERSIONS = (STABLE, CANDIDATE, THIRD)


def run_seconds(state, seconds, *, traffic=None, start=START):
    """Let an ingress report each second and the desk look each fifth; returns the decisions."""
    traffic = traffic or Traffic()
    evidence, decisions = fresh_evidence(state), []
    for second in range(1, seconds + 1):
        evidence.add(traffic.second(state), at=start + second)
        if second % 5:
            continue
        decision = decide(state, evidence, now=start + second)
        decisions.append(decision)
        state = decision.state
        if state.release is None:
            break
        evidence.follow(state.release)
    return decisions


@pytest.mark.slow
def test_a_good_candidate_takes_every_step_and_is_promoted():
    decisions = run_seconds(running_state(quick_plan(confidence={"false_pass": 0.2})), 600)
    state = decisions[-1].state

    assert state.stable == CANDIDATE
    assert state.last.outcome is Outcome.PROMOTED
    assert [event.weight for event in state.last.events] == [0.0, 0.2, 0.5, 1.0, 1.0]
    for before, after in itertools.pairwise(decisions):
        if after.state.release and after.state.release.weight > before.state.release.weight:
            assert checks_waited_for(after.results) == ()
    assert routing_table(state).candidate is None


@pytest.mark.parametrize(
    ("worse", "check"),
    [({"errors": 0.05}, "errors"), ({"flips": 0.05}, "flips"), ({"slower": 1.4}, "short")],
)
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_bad_candidate_is_rolled_back_also_while_paused(worse, check, is_paused):
    state = running_state()
    state = pause_release(state, at=START) if is_paused else state
    decisions = run_seconds(state, 95, traffic=Traffic(**worse))
    record = decisions[-1].state.last

    assert record.outcome is Outcome.ROLLED_BACK
    assert any(check in result.name for result in record.findings.failed)
    assert check in record.reason
    assert ("max_flip_rate" in record.reason) == (check == "flips")
    assert routing_table(decisions[-1].state).candidate is None
    text = describe_record(record)
    assert "rolled back after" in text
    assert f"candidate  {CANDIDATE.version}" in text
    assert "fail " in text
    if check == "flips":
        assert len(record.findings.disagreements) > 1
        assert f"{record.findings.disagreements[0].request_id}: good 0.900 → bad 0.800" in text


def test_an_error_burst_rolls_back_in_the_second_it_is_seen():
    state = running_state()
    evidence = fresh_evidence(state)
    cells = [cell(CANDIDATE.version, requests=30, errors=30), cell(STABLE.version, requests=99)]
    evidence.add(report(1, state=state, cells=cells), at=START + 1)
    decision = decide(state, evidence, now=START + 1)

    assert decision.state.last.findings.hard_limit.name == "error_burst"
    assert decision.state.last.reason.startswith("the candidate failed 30 of 30 requests in 10 s")


def test_no_traffic_is_no_step():
    state = running_state()
    evidence = fresh_evidence(state)
    evidence.add(report(1, state=state), at=START + 10_000)
    decision = decide(state, evidence, now=START + 10_001)

    assert decision.state is state
    assert {result.verdict for result in decision.results} == {Verdict.INCONCLUSIVE}


@pytest.mark.slow
def test_a_pause_holds_the_step_and_counts_as_dwelling():
    state = running_state()
    paused = pause_release(state, at=START)
    held = run_seconds(paused, 150)[-1]
    assert held.state is paused
    assert checks_waited_for(held.results) == ()

    resumed = resume_release(paused, at=START + 150)
    decision = run_seconds(resumed, 150)
    assert any(one.state.release.step == 1 for one in decision)


def test_without_evidence_or_release_nothing_is_decided():
    state = new_state(STABLE)
    assert decide(state, None, now=START).state is state
    running = running_state()
    assert decide(running, None, now=START).state is running
    evidence = fresh_evidence(running)
    with pytest.raises(ValueError, match="evidence is of r1, step 0"):
        decide(take_step(running, at=START, reason="x"), evidence, now=START)


@pytest.mark.parametrize(
    ("make", "act", "match"),
    [
        (running_state, lambda s: resume_release(s, at=1.0), r"must be paused \(got 'running'\)"),
        (running_state, lambda s: note_deployed(s, at=1.0), "must be deploying"),
        (lambda: new_state(STABLE), lambda s: pause_release(s, at=1.0), "no release is under way"),
        (
            lambda: new_state(STABLE),
            lambda s: end_release(s, Outcome.ABORTED, at=1.0, reason="x"),
            "no release is under way",
        ),
        (
            running_state,
            lambda s: start_release(s, release_id="r2", candidate=THIRD, plan=quick_plan(), at=1.0),
            "a release is under way",
        ),
        (
            lambda: new_state(STABLE),
            lambda s: start_release(
                s, release_id="r2", candidate=STABLE, plan=quick_plan(), at=1.0
            ),
            "this is the stable version already",
        ),
    ],
)
def test_what_does_not_fit_the_state_is_refused(make, act, match):
    with pytest.raises(ReleaseConflictError, match=match):
        act(make())


def test_promotion_needs_its_own_transition():
    with pytest.raises(ValueError, match="its own transition"):
        end_release(running_state(), Outcome.PROMOTED, at=1.0, reason="x")


def test_a_service_started_again_goes_on_with_what_it_has():
    state = running_state()
    assert reconcile_base(state, STABLE, at=1.0) == state

    promoted = promote_release(state, at=START, reason="by hand")
    assert reconcile_base(promoted, STABLE, at=1.0).stable == CANDIDATE
    named = reconcile_base(promoted, CANDIDATE, at=1.0)
    assert (named.base, named.stable) == (CANDIDATE.version, CANDIDATE)
    assert named.table_number > promoted.table_number


def test_another_bundle_in_the_serve_file_ends_what_was_under_way():
    state = running_state()
    fresh = reconcile_base(state, THIRD, at=START + 5)

    assert (fresh.stable, fresh.release) == (THIRD, None)
    assert fresh.last.outcome is Outcome.SUPERSEDED
    assert fresh.table_number > state.table_number


def test_texts_can_be_left_out_of_a_record():
    record = run_seconds(running_state(), 99, traffic=Traffic(flips=0.2))[-1].state.last

    assert all(item.text is None for item in without_texts(record).findings.disagreements)


# --- laws over any order of events ---

ACTS = {
    "deployed": lambda s, n: note_deployed(s, at=START + n),
    "pause": lambda s, n: pause_release(s, at=START + n),
    "resume": lambda s, n: resume_release(s, at=START + n),
    "step": lambda s, n: take_step(s, at=START + n, reason="every check passed"),
    "promote": lambda s, n: promote_release(s, at=START + n, reason="by hand"),
    "roll back": lambda s, n: end_release(s, Outcome.ROLLED_BACK, at=START + n, reason="errors"),
    "abort": lambda s, n: end_release(s, Outcome.ABORTED, at=START + n, reason="by hand"),
    "failed": lambda s, n: end_release(s, Outcome.FAILED_TO_START, at=START + n, reason="lanes"),
    **{
        f"start {index}": lambda s, n, one=one: start_release(
            s, release_id=f"r{n}", candidate=one, plan=quick_plan(), at=START + n
        )
        for index, one in enumerate(VERSIONS)
    },
    **{
        f"base {index}": lambda s, n, one=one: reconcile_base(s, one, at=START + n)
        for index, one in enumerate(VERSIONS)
    },
}
ORDERS = st.lists(st.sampled_from(sorted(ACTS)), max_size=40)


def histories(order):
    """Yield (act, state before, state after) of every act that the state allows."""
    state = new_state(STABLE)
    for number, act in enumerate(order):
        try:
            after = ACTS[act](state, number)
        except ReleaseConflictError:
            continue
        yield act, state, after
        state = after


@pytest.mark.slow
@given(ORDERS)
@settings(max_examples=300)
def test_a_version_that_lost_its_traffic_has_none_unless_it_is_started_anew(order):
    barred: set[str] = set()
    for act, _, state in histories(order):
        if act.startswith("start"):
            barred.discard(state.release.candidate.version)
        if act.startswith("base"):
            barred.discard(state.stable.version)  # A person named it in the Serve file.
        if act in ("roll back", "abort", "failed"):
            barred.add(state.last.candidate)
        table = routing_table(state)
        answering = {table.stable.version}
        if table.candidate is not None and table.weight > 0:
            answering.add(table.candidate.version)
        assert not answering & barred


@pytest.mark.slow
@given(ORDERS)
@settings(max_examples=300)
def test_the_weight_rises_by_steps_alone_and_tables_are_numbered_upwards(order):
    for act, before, after in histories(order):
        old, new = routing_table(before), routing_table(after)
        if new.weight > old.weight:
            assert act in ("deployed", "step")
            steps = [step.weight for step in quick_plan().steps]
            assert new.weight == steps[after.release.step]
        if act in ("pause", "resume"):
            assert new == old
        if old != new:
            assert new.number > old.number
        else:
            assert new.number == old.number
        assert after.release is None or after.release.phase in Phase


@given(ORDERS)
@settings(max_examples=100)
def test_every_state_goes_through_json(order):
    for _, _, state in histories(order):
        assert ADAPTER.validate_json(ADAPTER.dump_json(state)) == state


@given(ORDERS, st.data())
@settings(max_examples=40)
def test_a_kill_between_storing_and_handing_out_is_harmless(tmp_path_factory, order, data):
    store = ReleaseStore(tmp_path_factory.mktemp("release"))
    handed, ended = routing_table(new_state(STABLE)), []
    for _, before, after in histories(order):
        store.write_state(after)
        if after.last is not before.last:
            ended.append(after.last.release_id)
        if data.draw(st.booleans()):  # Killed here: the desk that follows reads and hands out.
            read = ReleaseStore(store.folder).recover()
            assert read == after
            after = read
        table = routing_table(after)
        assert table.number > handed.number or table == handed
        handed = table
    assert [record.release_id for record in store.read_history()] == ended


@pytest.mark.slow
def test_only_a_passing_look_takes_a_step():
    state = running_state()
    for decision in run_seconds(state, 300, traffic=Traffic(rate=30.0)):
        if decision.state.release and decision.state.release.step > 0:
            assert checks_waited_for(decision.results) == ()
