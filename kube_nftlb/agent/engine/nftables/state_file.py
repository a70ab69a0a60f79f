"""The state file: with it rules that went while no agent ran are back before the API server answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from kube_nftlb.agent.engine.nftables.groups import Group, Members
from kube_nftlb.agent.engine.nftables.layout import Target
from kube_nftlb.agent.engine.nftables.placement import Entry, Placement, Sticky
from kube_nftlb.agent.engine.snapshot_file import SnapshotFile

_log = structlog.get_logger()


class StateFile(SnapshotFile[Placement]):
    """Writes placements when that is due, one per line, and reads them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, lambda placement: f"{json.dumps(_json(placement))}\n", "".join)

    def read(self) -> dict[str, Placement]:
        """Return the placements in the file; none if it does not exist, or is not understood."""
        try:
            with self.path.open() as lines:
                return {placement.name: placement for line in lines for placement in (_placement(json.loads(line)),)}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, LookupError) as error:
            _log.warning("cannot read the state file", path=str(self.path), error=repr(error))
            return {}


def _json(value: Any) -> Any:
    """Return a placement, or a part of one, with lists for tuples and text for bytes."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Sticky):
        # Nobody is remembered where the table is made anew.
        value = value[:-1]
    return [_json(each) for each in value] if isinstance(value, tuple) else value


def _placement(read: list[Any]) -> Placement:
    name, family, entries, endpoints, inside, hairpin, sticky, groups = read
    return Placement(
        name,
        family,
        tuple(Entry(bytes.fromhex(key), *others) for key, *others in entries),
        tuple(_targets(endpoints)),
        tuple(_targets(inside)),
        tuple(bytes.fromhex(ip) for ip in hairpin),
        _sticky(sticky) if sticky is not None else None,
        tuple(Group(number, share, _members(of)) for number, share, of in groups),
    )


def _members(read: list[Any]) -> Members:
    endpoints, inside, picks, inside_picks = read
    return Members(tuple(_targets(endpoints)), tuple(_targets(inside)), tuple(picks), tuple(inside_picks))


def _sticky(read: list[Any]) -> Sticky:
    farm, endpoints, picks, inside_picks, sessions = read
    numbered = ((number, Target(bytes.fromhex(ip), port)) for number, (ip, port) in endpoints)
    fixed = ((bytes.fromhex(client), number) for client, number in sessions)
    return Sticky(farm, tuple(numbered), tuple(picks), tuple(inside_picks), tuple(fixed))


def _targets(read: list[Any]) -> Iterator[Target]:
    for ip, port in read:
        yield Target(bytes.fromhex(ip), port)
