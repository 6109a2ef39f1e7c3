"""Runs a plan against its target until it is done or stopped."""

import asyncio
import gc
import resource
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from pipeline.contract.errors import ConfigError
from serve_app.load.client import HttpClient, NotHttpError
from serve_app.load.driver import Driver, failure_of, read_reply
from serve_app.load.plan import LoadPlan
from serve_app.load.precise_loop import new_precise_loop
from serve_app.load.record import REFUSED, TIMEOUT, Failure, Sample

_TICK_S = 0.5
"""Chosen: drawing the bar takes a millisecond, in which no answer is read."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_HOPELESS = {301, 302, 307, 308, 401, 403, 404, 405}
"""Statuses that say the URL or the key is wrong; every request would get them."""

OnTick = Callable[[Driver], None]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a run left."""

    samples: tuple[Sample, ...]
    unanswered_due_s: tuple[float, ...]
    """When requests that were still under way at a stop were due."""
    ended_s: float
    """Seconds since the run began."""
    is_stopped: bool
    cpu_share: float
    """CPU seconds of this process for each second of the run."""


def measure(plan: LoadPlan, *, on_tick: OnTick) -> Measured | None:
    """Return what became of the plan's requests; None if it was stopped before the first.

    Ctrl-C and SIGTERM end the run with what it has so far.

    Args:
        plan: the run.
        on_tick: called twice a second.

    Raises:
        ConfigError: the service cannot be reached or refuses every request.
    """
    _allow_many_connections()
    with asyncio.Runner(loop_factory=new_precise_loop) as runner:
        return runner.run(_measure(plan, on_tick))


async def _measure(plan: LoadPlan, on_tick: OnTick) -> Measured | None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    client = HttpClient(plan.target, api_key=plan.api_key)
    # A collection may take tens of milliseconds among many samples; there are few cycles to find.
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        if not await _run(_try_once(client, plan), stop=stop, on_tick=None):
            return None
        driver = Driver(
            client,
            plan.texts.draw(plan.seed),
            timeout_s=plan.timeout_s,
            is_impatient=plan.is_impatient,
        )
        cpu_s = time.process_time()
        if plan.due_s is None:
            work = driver.run_closed(connections=plan.connections or 1, until_s=plan.end_s)
        else:
            work = driver.run_open(plan.due_s.tolist())
        is_done = await _run(work, stop=stop, on_tick=lambda: on_tick(driver))
        return Measured(
            samples=tuple(driver.samples),
            unanswered_due_s=tuple(driver.unanswered_due_s),
            ended_s=driver.now_s,
            is_stopped=not is_done,
            cpu_share=(time.process_time() - cpu_s) / driver.now_s,
        )
    finally:
        client.close()
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)
        if was_collecting:
            gc.enable()


async def _run(
    work: Coroutine[Any, Any, None],
    *,
    stop: asyncio.Event,
    on_tick: Callable[[], None] | None,
) -> bool:
    """Return whether the work was done; False if it was broken off by a stop."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    ends = asyncio.FIRST_COMPLETED
    while not working.done() and not stopping.done():
        await asyncio.wait({working, stopping}, timeout=_TICK_S, return_when=ends)
        if on_tick:
            on_tick()
    is_done = working.done()
    for task in (working, stopping):
        task.cancel()
    await asyncio.wait({working, stopping})
    if not working.cancelled() and (error := working.exception()):
        raise error
    return is_done


async def _try_once(client: HttpClient, plan: LoadPlan) -> None:
    """Send one request that counts nowhere, to find what would make all of them fail.

    Raises:
        ConfigError: nobody listens, nobody answers, or the URL or the key is wrong.
    """
    loop = asyncio.get_running_loop()
    first = next(plan.texts.draw(plan.seed))
    try:
        reply = await client.post(first.body, until_s=loop.time() + plan.timeout_s)
    except (OSError, NotHttpError) as error:
        raise _unusable(plan, failure_of(error)) from None
    _, failure = read_reply(reply)
    if failure and failure.status in _HOPELESS:
        raise _unusable(plan, failure)


def _unusable(plan: LoadPlan, failure: Failure) -> ConfigError:
    remedy = "Is it the address that `textlane serve` printed?"
    problem = f"the service cannot be reached: {failure.kind}"
    if failure.kind == REFUSED:
        problem, remedy = "nothing listens there", "Start it, such as with `textlane serve`."
    elif failure.kind == TIMEOUT:
        problem = f"the first request had no answer within {plan.timeout_s:g} s"
        remedy = "Is it ready? A longer --timeout waits longer."
    elif failure.status in (401, 403):
        problem = f"the service refuses the requests: {failure.kind}"
        remedy = "Give the service's key with --api-key."
    elif failure.status is not None:
        problem = f"the service does not take texts there: {failure.kind}"
        remedy = "The road is /v1/predict, which is also taken if the URL names none."
    said = f", {failure.message}" if failure.message else ""
    return ConfigError(f"{problem}{said}", place=plan.target.url, remedy=remedy)


def _allow_many_connections() -> None:
    # The usual limit of 1,024 files would end an open loop long before the service does.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
