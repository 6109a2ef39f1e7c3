"""Those that left are told of in few calls, none of them twice, and after a failure as well."""

import asyncio

from serve_app.leavers import Leavers


class Lane:
    """Keeps what it was told; waits for the gate."""

    def __init__(self):
        self.told, self.failures = [], []
        self.gate = asyncio.Event()
        self.gate.set()

    async def tell(self, gone):
        self.told.append(gone)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop()


def test_those_of_one_moment_and_those_of_a_call_go_together():
    async def go():
        lane = Lane()
        lane.gate.clear()
        leavers = Leavers(lane.tell)
        for keys in ((1, 2), (3,), (4, 5)):
            for key in keys:
                leavers.add(key)
            await asyncio.sleep(0.001)
        lane.gate.set()
        await asyncio.sleep(0.001)
        leavers.add(6)
        await asyncio.sleep(0.001)
        return lane.told

    assert asyncio.run(go()) == [[1, 2], [3, 4, 5], [6]]


def test_a_lane_that_cannot_be_told_is_told_of_the_next():
    async def go():
        lane = Lane()
        asyncio.get_running_loop().set_exception_handler(lambda _loop, seen: failed.append(seen))
        lane.failures = [ValueError("x")]
        leavers = Leavers(lane.tell)
        leavers.add(1)
        await asyncio.sleep(0.001)
        leavers.add(2)
        await asyncio.sleep(0.001)
        return lane.told

    failed = []

    assert asyncio.run(go()) == [[1], [2]]
    assert isinstance(failed[0]["exception"], ValueError)
