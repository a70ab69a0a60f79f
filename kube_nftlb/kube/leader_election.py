"""Who leads: what a replica does about the Lease that it sees. No I/O.

As client-go does it: a holder leads for as long as its record changes. How old the record says it is does not count,
since that is another machine's clock: only when this replica saw it change, by its own.
"""

from datetime import datetime
from typing import Any, NamedTuple

from kube_nftlb.kube import timestamps

DURATION_S = 15.0
"""A Lease that has not changed for so long is anybody's. The times are the defaults of Kubernetes' own components."""
RENEW_DEADLINE_S = 10.0
"""A leader that could not renew for so long leads no more: well before anybody else may begin."""
RETRY_S = 2.0
"""Between two renewals, and between two attempts to get the Lease."""

Json = dict[str, Any]


class Record(NamedTuple):
    """What a Lease says. Nobody holds it where ``holder`` is empty; a Lease that there is not has no version."""

    version: str = ""
    holder: str = ""
    duration_s: float = DURATION_S
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0


NO_LEASE = Record()


class Seen(NamedTuple):
    """A record, and when it was first seen to be so, by this process' own clock."""

    record: Record
    since: float


def parse(raw: Json) -> Record:
    """A Lease object as the API server has it."""
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
    """How long ``me`` must wait before it may take the Lease; 0 where it may now."""
    if seen.record.holder in ("", me):
        return 0
    return max(0.0, seen.since + seen.record.duration_s - clock)


def taken(record: Record, now: datetime, me: str) -> Json:
    """The ``spec`` by which ``me`` gets the Lease, or keeps it."""
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
    """The ``spec`` by which a leader gives the Lease back; others need not wait for its end then."""
    return {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "acquireTime": timestamps.micros(now),
        "renewTime": timestamps.micros(now),
        "leaseTransitions": record.transitions,
    }
