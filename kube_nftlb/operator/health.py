"""Decide the answers to probes of the operator. No I/O."""

from datetime import datetime

from kube_nftlb.http_server import Answer
from kube_nftlb.kube import timestamps

STALLED_S = 300.0
"""Workers that finish nothing for longer hang: each answer takes 30 s at most, and a Service with many ports needs
several."""


def answer(path: str, *, now: datetime, stalled_s: float, listed: bool, leads: bool = True) -> Answer:
    """Answer a probe.

    ``stalled_s`` are the seconds since a worker made progress; ``listed`` is True once the first lists are done.
    ``leads`` is shown, and does not matter: a standby replica is ready too.
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
