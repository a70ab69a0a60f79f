"""The state file: with it a node that boots has its farms before the API server answers."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog

from kube_nftlb.agent.engine.nftables.layout import Target
from kube_nftlb.agent.engine.nftables.placement import Entry, Placement, Sticky

_log = structlog.get_logger()

SAVE_EVERY_S = 2
"""The minimum interval between writes."""
SAVE_WITHIN_S = 60
"""The interval while changes come without pause."""


class StateFile:
    """Writes placements when that is due, one per line, and reads them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved: Mapping[str, Placement] = {}
        self._saved_at = float("-inf")

    def read(self) -> dict[str, Placement]:
        """Return the placements in the file; none if it does not exist, or is not understood."""
        try:
            with self._path.open() as lines:
                return {placement.name: placement for line in lines for placement in (_placement(json.loads(line)),)}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, LookupError) as error:
            _log.warning("cannot read the state file", path=str(self._path), error=repr(error))
            return {}

    def save_if_due(self, placements: Mapping[str, Placement], now: float, *, busy: bool) -> None:
        """Write the file if it is due at ``now``, in seconds of a monotonic clock. Raises OSError."""
        if now - self._saved_at >= (SAVE_WITHIN_S if busy else SAVE_EVERY_S):
            # Also if writing fails, so that it is not tried at every call.
            self._saved_at = now
            self.save(placements)

    def save(self, placements: Mapping[str, Placement]) -> None:
        """Write the file now if anything has changed. Raises OSError."""
        if placements == self._saved:
            return
        temporary = self._path.with_suffix(".new")
        with temporary.open("w") as file:
            temporary.chmod(0o600)
            file.writelines(f"{json.dumps(_json(each))}\n" for each in placements.values())
        temporary.replace(self._path)
        self._saved = dict(placements)


def _json(value: Any) -> Any:
    """Return a placement, or a part of one, with lists for tuples and text for bytes."""
    if isinstance(value, bytes):
        return value.hex()
    return [_json(each) for each in value] if isinstance(value, tuple) else value


def _placement(read: list[Any]) -> Placement:
    name, family, entries, endpoints, inside, hairpin, sticky = read
    return Placement(
        name,
        family,
        tuple(Entry(bytes.fromhex(key), *others) for key, *others in entries),
        tuple(_targets(endpoints)),
        tuple(_targets(inside)),
        tuple(bytes.fromhex(ip) for ip in hairpin),
        _sticky(sticky) if sticky is not None else None,
    )


def _sticky(read: list[Any]) -> Sticky:
    farm, endpoints, picks, inside_picks, ttl_s, sessions = read
    numbered = ((number, Target(bytes.fromhex(ip), port)) for number, (ip, port) in endpoints)
    fixed = ((bytes.fromhex(client), number) for client, number in sessions)
    return Sticky(farm, tuple(numbered), tuple(picks), tuple(inside_picks), ttl_s, tuple(fixed))


def _targets(read: list[Any]) -> Iterator[Target]:
    for ip, port in read:
        yield Target(bytes.fromhex(ip), port)
