import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.train.device_memory import MemoryReading
from pipeline.train.memory_watch import MemoryWatch

MB = 10**6
STEPS = range(1, 5001)


def watch_cpu(resident_mb, steps=STEPS):
    """Return the steps and events of a CPU run whose resident memory is a function of the step."""
    readings = (
        MemoryReading(
            allocated_bytes=int(resident_mb(step) * MB),
            reserved_bytes=None,
            peak_bytes=int(resident_mb(step) * MB),
        )
        for step in steps
    )
    return watch(readings, steps, [16] * len(steps))


def watch_cuda(reserved_mb, *, peak_mb=lambda step: 2000, allocated_mb=lambda step: 1000):
    readings = (
        MemoryReading(
            allocated_bytes=int(allocated_mb(step) * MB),
            reserved_bytes=int(reserved_mb(step) * MB),
            peak_bytes=int(peak_mb(step) * MB),
        )
        for step in STEPS
    )
    return watch(readings, STEPS, [10 + step % 50 for step in STEPS])


def watch(readings, steps, lengths):
    watching = MemoryWatch()
    found = []
    for step, reading, longest in zip(steps, readings, lengths, strict=True):
        told = watching.observe(step, reading, longest)
        if told:
            found.append((step, *told))
    return found


def noise(step):
    """Return -1 to 1, as if at random."""
    return random.Random(step).uniform(-1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("mb_per_step", [0.05, 0.2, 1.0])
def test_steady_growth_under_noise_is_a_leak(mb_per_step):
    found = watch_cpu(lambda step: 800 + mb_per_step * step + 20 * abs(noise(step)))

    kinds = {kind for _, kind, _ in found}
    assert kinds == {"memory_leak"}
    assert found[0][0] <= 400 or mb_per_step < 1.0


def test_leak_is_told_with_figures_and_ever_more_rarely():
    found = watch_cpu(lambda step: 800 + step)

    assert found[0][2].startswith(
        "allocated memory grew from 851 to 1151 MB in the 350 steps up to 400"
    )
    assert 2 <= len(found) <= 5
    gaps = [later - earlier for (earlier, *_), (later, *_) in pairwise(found)]
    assert gaps == sorted(gaps)


def test_leak_of_cuda_tensors_is_a_leak_and_no_fragmentation():
    found = watch_cuda(
        lambda step: 2500 + step,
        allocated_mb=lambda step: 1000 + step,
        peak_mb=lambda step: 2000 + step,
    )

    assert {kind for _, kind, _ in found} == {"memory_leak"}


@pytest.mark.parametrize("half_life", [5, 50, 200])
def test_warm_up_is_no_leak(half_life):
    assert watch_cpu(lambda step: 1500 - 900 * 0.5 ** (step / half_life)) == []


def test_one_rise_among_small_ones_is_no_leak():
    """A library that is loaded late, while the process grows a little all the time."""
    assert watch_cpu(lambda step: 500 + 0.01 * step + (45 if step > 220 else 0)) == []


def test_records_of_random_lengths_are_no_leak():
    # The resident memory follows the longest batch so far: a logarithm with jumps.
    assert watch_cpu(lambda step: 800 + 100 * math.floor(math.log2(step))) == []


def test_longest_first_and_spikes_are_no_leak():
    def resident(step):
        return 3000 if step == 1 or step % 97 == 0 else 800 + 300 * abs(noise(step))

    assert watch_cpu(resident) == []


@pytest.mark.slow
@given(level=st.integers(1, 10**5), spread=st.floats(0.0, 0.5), seed=st.integers(0, 10**6))
def test_noise_around_a_level_is_no_alarm(level, spread, seed):
    draw = random.Random(seed).random

    assert watch_cpu(lambda _: level * (1 + spread * draw()), range(1, 1201)) == []


def test_growth_that_ends_is_told_at_most_once():
    found = watch_cpu(lambda step: 800 + min(step, 450))

    assert len(found) <= 1


def test_reserved_that_grows_at_steady_peaks_is_fragmentation():
    # Segments of 20 MB.
    found = watch_cuda(lambda step: 2600 + 20 * (step // 25))

    assert {kind for _, kind, _ in found} == {"fragmentation"}
    message = found[0][2]
    assert "while no step needed more than 2000 MB (up to 16 tokens 2000, up to 32" in message
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in message


def test_reserved_that_follows_new_peaks_is_no_fragmentation():
    def peak(step):
        return 1000 + step

    assert watch_cuda(lambda step: 1.4 * peak(step), peak_mb=peak) == []


def test_reserved_near_the_peak_is_no_fragmentation():
    assert watch_cuda(lambda step: 2000 + min(0.1 * step, 400)) == []


def test_reserved_that_settles_is_no_fragmentation():
    assert watch_cuda(lambda step: 4000 - 1500 * 0.5 ** (step / 60)) == []


def test_peaks_are_kept_by_length_class():
    watching = MemoryWatch()
    for longest, peak in [(16, 5), (17, 9), (30, 7), (1, 3)]:
        reading = MemoryReading(allocated_bytes=1, reserved_bytes=9, peak_bytes=peak)
        watching.observe(1, reading, longest)

    assert watching.peaks == {16: 5, 32: 9, 1: 3}
