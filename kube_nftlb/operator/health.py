"""What the operator answers to probes. No I/O."""

from datetime import datetime

from kube_nftlb.http_server import Answer
from kube_nftlb.kube import timestamps

STALLED_S = 300.0
"""Workers that have work and finish none for so long hang: each waits 30 s at most for an answer, of which a Service
with many ports needs several."""


def answer(path: str, *, now: datetime, stalled_s: float, listed: bool, leads: bool = True) -> Answer:
    """``stalled_s`` is for how long no worker has got on with its work, ``listed`` whether the first lists are done.

    Whether this replica ``leads`` is told, and makes no difference: one that stands by is ready to.
    """
    healthy = stalled_s <= STALLED_S
    time = {"currentTime": timestamps.micros(now)}
    if path in ("/healthz", "/livez"):
        return Answer(200 if healthy else 503, {**time, "healthy": healthy})
    if path == "/readyz":
        ready = healthy and listed
        body = {**time, "healthy": healthy, "listed": listed, "leader": leads, "ready": ready}
        return Answer(200 if ready else 503, body)
    return Answer(404, {"error": "ask for /healthz, /livez or /readyz"})
