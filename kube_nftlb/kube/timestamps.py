"""Times as Kubernetes writes them into annotations. No I/O."""

from datetime import UTC, datetime


def parse(text: object) -> datetime | None:
    """An RFC 3339 time, or None for anything else; what is finer than a microsecond is left out."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def text(time: datetime) -> str:
    """A time as RFC 3339, in UTC."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
