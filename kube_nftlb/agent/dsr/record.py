"""The record of what pods were given, and for which farms, so that an agent that starts can undo it, or leave it."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from kube_nftlb import files
from kube_nftlb.agent.dsr.modes import PodVip

_log = structlog.get_logger()

UNKNOWN = ""
"""Stands for the farm of an address in the file of an agent that did not name it."""


@dataclass(frozen=True)
class Entry:
    """The changes in a pod's namespace, and the settings before; it may lack what was about to be changed."""

    namespace: int
    interface: str
    arp: Mapping[str, int]
    vips: Mapping[str, frozenset[str]]
    """The addresses, each with the names of the farms that it is for."""


class Record:
    """Entries by the IP addresses of pods, in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.entries = _read(file)

    def farms(self) -> dict[str, frozenset[PodVip]]:
        """Return the addresses of pods by the farms that they are for."""
        found: dict[str, set[PodVip]] = {}
        for ip, entry in self.entries.items():
            for vip, farms in entry.vips.items():
                for farm in farms:
                    found.setdefault(farm, set()).add(PodVip(ip, vip))
        return {farm: frozenset(vips) for farm, vips in found.items()}

    def name_farms(self, given: Mapping[str, Mapping[str, frozenset[str]]]) -> bool:
        """Note for which farms addresses of pods are, by IP address; those that are for none keep their farms.

        Return True if anything has changed.
        """
        changed = False
        for ip, entry in self.entries.items():
            named = {vip: given.get(ip, {}).get(vip, farms) for vip, farms in entry.vips.items()}
            if named != entry.vips:
                self.entries[ip] = replace(entry, vips=named)
                changed = True
        return changed

    def write(self) -> None:
        """Write the file. Raises OSError."""
        content = {ip: {**asdict(entry), "vips": dict(_sorted(entry.vips))} for ip, entry in self.entries.items()}
        files.replace(self._file, json.dumps(content))


def _sorted(vips: Mapping[str, Collection[str]]) -> Iterator[tuple[str, list[str]]]:
    return ((vip, sorted(farms)) for vip, farms in sorted(vips.items()))


def _read(file: Path) -> dict[str, Entry]:
    try:
        content = json.loads(file.read_text())
        return {ip: Entry(**{**entry, "vips": _vips(entry["vips"])}) for ip, entry in content.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        # Of another version, or cut off.
        _log.warning("cannot read which addresses pods were given: they keep them", file=str(file), error=repr(error))
        return {}


def _vips(content: Any) -> dict[str, frozenset[str]]:
    if isinstance(content, list):
        # Of a version that did not record the farms.
        return dict.fromkeys(content, frozenset((UNKNOWN,)))
    return {vip: frozenset(farms) for vip, farms in content.items()}
