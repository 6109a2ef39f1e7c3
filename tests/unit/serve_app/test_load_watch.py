"""When a lane's load is told: while there is work, once when there is none, always with a GPU."""

import asyncio

from serve_app.load_watch import BusyShare, LoadWatch, QueueLoad

IDLE = QueueLoad(num_texts=0, num_batches=0.0, oldest_s=0.0, busy_s=2.0, is_idle=True)


def busy(num_texts):
    return QueueLoad(num_texts=num_texts, num_batches=1.0, oldest_s=0.5, busy_s=1.0, is_idle=False)


class FakeSource:
    """Gives its loads one after the other, then is idle."""

    def __init__(self, *loads):
        self.loads = list(loads)

    def read_load(self):
        return self.loads.pop(0) if self.loads else IDLE


def watch_of(source, told, **options):
    def report(load, gpu):
        told.append((load, gpu))

    return LoadWatch(source, report=report, period_s=0.001, **options)


async def until(is_there):
    async with asyncio.timeout(10):
        while not is_there():
            await asyncio.sleep(0.001)


def test_a_load_is_told_until_it_is_idle_and_again_when_woken():
    told, source = [], FakeSource(busy(3), busy(1))

    async def go():
        watch = watch_of(source, told)
        watch.wake()
        watch.wake()
        await until(lambda: told and told[-1][0].is_idle)
        await asyncio.sleep(0.01)
        assert len(told) == 3
        source.loads = [busy(2)]
        watch.wake()
        await until(lambda: len(told) == 5)

    asyncio.run(go())

    assert [load.num_texts for load, _ in told] == [3, 1, 0, 2, 0]
    assert {gpu for _, gpu in told} == {None}


def test_with_a_gpu_an_idle_lane_is_told_of_too():
    told = []

    async def go():
        watch_of(FakeSource(), told, read_gpu=lambda: 0.4).wake()
        await until(lambda: len(told) >= 3)

    asyncio.run(go())

    assert set(told) == {(IDLE, 0.4)}


def test_a_report_that_fails_is_tried_again_with_the_next_work(caplog):
    told = []

    def refuse(load, gpu):
        told.append(load)
        raise RuntimeError("metrics are full")

    async def go():
        watch = LoadWatch(FakeSource(), report=refuse)
        watch.wake()
        await until(lambda: told)
        await asyncio.sleep(0.005)
        watch.wake()
        await until(lambda: len(told) == 2)

    asyncio.run(go())


def test_the_busy_share_is_that_since_it_was_last_read():
    now = [100.0]
    share = BusyShare(clock=lambda: now[0])

    now[0] = 104.0
    first = share.read(3.0)
    now[0] = 106.0

    assert (first, share.read(3.5), share.read(3.5)) == (0.75, 0.25, 0.0)
