"""``until-answers`` and ``until-refuses``: the time at which a Service starts or stops replying."""

import asyncio
import contextlib
import time
from typing import Any

from lab.traffic.ask import Target, ask, ask_tcp, kind_of, now

_IN_A_ROW = 3


def until_answers(target: Target, interval_s: float, timeout_s: float) -> dict[str, Any]:
    """Open a new connection at each interval, without waiting for earlier ones, until one is answered."""
    return asyncio.run(first_answer(target, interval_s, timeout_s))


async def first_answer(target: Target, interval_s: float, timeout_s: float) -> dict[str, Any]:
    """Do the same as ``until_answers``, asynchronously."""
    deadline, attempts = time.monotonic() + timeout_s, 0
    answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def attempt() -> None:
        with contextlib.suppress(OSError, ValueError):
            async with asyncio.timeout(target.timeout_s):
                answer = await ask(target)
            if not answered.done():
                answered.set_result({"answered": True, "pod": answer.pod, **now()})

    attempts_under_way: set[asyncio.Task[None]] = set()
    while not answered.done() and time.monotonic() < deadline:
        attempts += 1
        task = asyncio.create_task(attempt())
        attempts_under_way.add(task)
        task.add_done_callback(attempts_under_way.discard)
        await asyncio.wait([answered], timeout=interval_s)
    for task in attempts_under_way:
        task.cancel()
    await asyncio.gather(*attempts_under_way, return_exceptions=True)
    if not answered.done():
        return {"answered": False, "attempts": attempts, **now()}
    return {"attempts": attempts, **answered.result()}


def until_refuses(target: Target, interval_s: float, timeout_s: float) -> dict[str, Any]:
    """Open new connections until three in a row fail; the time is that of the first."""
    deadline, attempts, in_a_row = time.monotonic() + timeout_s, 0, 0
    first, kind = now(), ""
    while time.monotonic() < deadline:
        attempts += 1
        begin = now()
        try:
            ask_tcp(target)
        except (OSError, ValueError) as error:
            first = first if in_a_row else begin
            in_a_row, kind = in_a_row + 1, kind_of(error)
            if in_a_row == _IN_A_ROW:
                return {"refused": True, "attempts": attempts, "kind": kind, **first}
        else:
            in_a_row = 0
        time.sleep(interval_s)
    return {"refused": False, "attempts": attempts, "kind": kind, **now()}
