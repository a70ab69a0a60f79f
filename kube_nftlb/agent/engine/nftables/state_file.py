"""The state file: with it rules that went while no agent ran are back before the API server answers."""

import json
from collections.abc import Iterable, Iterator
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
        self._saved: object = None
        self._lines: dict[str, tuple[Placement, str]] = {}
        """The line of each farm, with the placement that it is of: making lines is most of the work."""
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

    def due(self, revision: object, now: float, *, busy: bool) -> bool:
        """Return True if the file is to be written at ``now``, in seconds of a monotonic clock.

        ``revision`` differs from the one that was saved if anything has changed.
        """
        return revision != self._saved and now - self._saved_at >= (SAVE_WITHIN_S if busy else SAVE_EVERY_S)

    def save(self, placements: Iterable[Placement], revision: object, now: float) -> None:
        """Write the file. Raises OSError."""
        # Also if writing fails, so that it is not tried at every call.
        self._saved_at = now
        lines = {}
        for each in placements:
            known = self._lines.get(each.name)
            lines[each.name] = known if known and known[0] is each else (each, f"{json.dumps(_json(each))}\n")
        self._lines = lines
        temporary = self._path.with_suffix(".new")
        with temporary.open("w") as file:
            temporary.chmod(0o600)
            file.writelines(line for _, line in lines.values())
        temporary.replace(self._path)
        self._saved = revision


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
    farm, endpoints, picks, inside_picks, sessions = read
    numbered = ((number, Target(bytes.fromhex(ip), port)) for number, (ip, port) in endpoints)
    fixed = ((bytes.fromhex(client), number) for client, number in sessions)
    return Sticky(farm, tuple(numbered), tuple(picks), tuple(inside_picks), tuple(fixed))


def _targets(read: list[Any]) -> Iterator[Target]:
    for ip, port in read:
        yield Target(bytes.fromhex(ip), port)
