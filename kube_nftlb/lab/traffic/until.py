"""``until-answers`` and ``until-refuses``: when a Service begins or ends to work."""

import time
from typing import Any

from kube_nftlb.lab.traffic.ask import Target, ask_tcp, kind_of, now

_IN_A_ROW = 3


def until_answers(target: Target, interval_s: float, timeout_s: float) -> dict[str, Any]:
    """Try fresh connections until one is answered."""
    deadline, attempts = time.monotonic() + timeout_s, 0
    while time.monotonic() < deadline:
        attempts += 1
        try:
            answer = ask_tcp(target)
        except (OSError, ValueError):
            time.sleep(interval_s)
        else:
            return {"answered": True, "attempts": attempts, "pod": answer.pod, **now()}
    return {"answered": False, "attempts": attempts, **now()}


def until_refuses(target: Target, interval_s: float, timeout_s: float) -> dict[str, Any]:
    """Try fresh connections until three in a row fail; the time is that of the first of the three."""
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
