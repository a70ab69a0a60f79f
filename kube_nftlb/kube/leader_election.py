"""Decide what a replica does about the Lease that it sees. No I/O.

As in client-go, a holder leads for as long as its record keeps changing. The times in the record do not count, since
they are from another machine's clock: only when this replica saw the record change, by its own clock.
"""

from datetime import datetime
from typing import Any, NamedTuple

from kube_nftlb.kube import timestamps

DURATION_S = 15.0
"""A Lease that has not changed for longer may be taken. All times are the defaults of Kubernetes' own components."""
RENEW_DEADLINE_S = 10.0
"""A leader that cannot renew for longer stops, well before another replica may start."""
RETRY_S = 2.0
"""The interval between renewals, and between attempts to acquire the Lease."""

Json = dict[str, Any]


class Record(NamedTuple):
    """The content of a Lease. It is free if ``holder`` is empty, and does not exist if ``version`` is."""

    version: str = ""
    holder: str = ""
    duration_s: float = DURATION_S
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0


NO_LEASE = Record()


class Seen(NamedTuple):
    """A record, and when this process first saw it, by its own clock."""

    record: Record
    since: float


def parse(raw: Json) -> Record:
    """Parse a Lease object."""
    spec = raw.get("spec") or {}
    return Record(
        raw["metadata"]["resourceVersion"],
        spec.get("holderIdentity") or "",
        float(spec.get("leaseDurationSeconds") or DURATION_S),
        spec.get("acquireTime") or "",
        spec.get("renewTime") or "",
        spec.get("leaseTransitions") or 0,
    )


def wait_s(seen: Seen, clock: float, me: str) -> float:
    """Return the seconds until ``me`` may take the Lease; 0 if it may now."""
    if seen.record.holder in ("", me):
        return 0
    return max(0.0, seen.since + seen.record.duration_s - clock)


def acquisition(record: Record, now: datetime, me: str) -> Json:
    """Return the ``spec`` with which ``me`` acquires or renews the Lease."""
    keeps = record.holder == me
    first = record == NO_LEASE
    return {
        "holderIdentity": me,
        "leaseDurationSeconds": int(DURATION_S),
        "acquireTime": (record.acquired if keeps else "") or timestamps.micros(now),
        "renewTime": timestamps.micros(now),
        "leaseTransitions": record.transitions + (0 if keeps or first else 1),
    }


def released(record: Record, now: datetime) -> Json:
    """Return the ``spec`` with which a leader releases the Lease, so that others need not wait for its end."""
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": timestamps.micros(now),
        "renewTime": timestamps.micros(now),
        "leaseTransitions": record.transitions,
    }
