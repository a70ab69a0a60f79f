"""RFC 3339 times as Kubernetes writes them. No I/O."""

from datetime import UTC, datetime


def parse(text: object) -> datetime | None:
    """Return the time that a text with a time zone stands for, to the microsecond; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def seconds(time: datetime) -> str:
    """Return a time in UTC to the second: metav1.Time, as in conditions and Events."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micros(time: datetime) -> str:
    """Return a time in UTC to the microsecond: metav1.MicroTime, as in Leases."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
