from hypothesis import given
from hypothesis import strategies as st

from pipeline.train.group import SingleGroup
from pipeline.train.notice import NoticePoll


def poll_steps(durations_s, *, notice_at_step=None):
    """Return the steps at which one rank asks, and those at which it tells of the notice."""
    asked, told, now = [], [], {"step": 0, "s": 0.0}

    def ask():
        asked.append(now["step"])
        is_there = notice_at_step is not None and now["step"] >= notice_at_step
        return "node a goes" if is_there else None

    poll = NoticePoll(ask=ask, group=SingleGroup(), clock=lambda: now["s"])
    for step, duration_s in enumerate(durations_s, start=1):
        now["step"] = step
        now["s"] += duration_s
        if poll():
            told.append(step)
    return asked, told


def test_fast_steps_are_asked_about_every_five_seconds():
    asked, _ = poll_steps([0.01] * 5000)

    assert asked[:5] == [1, 3, 7, 15, 31]
    assert asked[-1] - asked[-2] == 500


def test_slow_steps_are_asked_about_each_time():
    asked, _ = poll_steps([6.0] * 10)

    assert asked == list(range(1, 11))


def test_steps_that_become_slow_are_soon_asked_about_each_time():
    asked, _ = poll_steps([0.01] * 2000 + [5.0] * 600)

    assert asked[-3:] == [2598, 2599, 2600]


def test_notice_is_told_once():
    _, told = poll_steps([1.0] * 30, notice_at_step=8)

    assert len(told) == 1
    assert 8 <= told[0] <= 13


def test_resize_that_one_rank_knows_of_is_told_on_all_and_once():
    class Group:
        def gather(self, values):
            return [*values, 5000, 1]

    poll = NoticePoll(group=Group(), clock=lambda: 0.0)

    assert not poll.has_told
    assert [poll(), poll()] == ["the training goes on with another number of workers", None]
    assert poll.has_told


@given(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=60))
def test_ranks_with_other_clocks_ask_at_the_same_steps(durations_s):
    shared, steps = {}, {0: [], 1: []}

    class Group:
        """Ranks that take turns: the first to come leaves its figure for the second."""

        def __init__(self, rank):
            self.rank = rank

        def gather(self, values):
            return [*values, shared["other"], 0]

    now_s = [0.0, 0.0]
    polls = [
        NoticePoll(
            ask=lambda rank=rank: steps[rank].append(step),
            group=Group(rank),
            clock=lambda rank=rank: now_s[rank],
        )
        for rank in (0, 1)
    ]
    asked_s = [0.0, 0.0]
    for step, duration_s in enumerate(durations_s, start=1):
        now_s[0] += duration_s
        now_s[1] += duration_s * 1.5
        for rank in (0, 1):
            shared["other"] = int(1000 * (now_s[1 - rank] - asked_s[1 - rank]))
            polls[rank]()
        if steps[0] and steps[0][-1] == step:
            asked_s = list(now_s)

    assert steps[0] == steps[1]
