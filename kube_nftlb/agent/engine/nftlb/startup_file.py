"""nftlb's start-up file: with it a restarted daemon has its farms before it answers."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import structlog

from kube_nftlb.agent.engine.nftlb.verify import OfEachFarm
from kube_nftlb.nftlb import loading, objects

_log = structlog.get_logger()

SAVE_EVERY_S = 2
"""The minimum interval between writes."""
SAVE_WITHIN_S = 60
"""The interval while changes come without pause."""


class StartupFile:
    """Holds the farms that were verified in the kernel, and writes them when that is due."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._farms: dict[str, objects.Farm] = {}
        self._texts = OfEachFarm(lambda farm: json.dumps(farm.wire()))
        self._changed = False
        self._saved_at = float("-inf")

    def loaded(self) -> None:
        """Note that nftlb answers. Have the file written anew if there is none, as after nftlb ended over it."""
        try:
            loading.done(self._path)
        except OSError as error:
            _log.warning("cannot rename nftlb's start-up file", error=str(error))
        self._changed = self._changed or (bool(self._farms) and not self._path.exists())

    def has_farms(self) -> bool:
        """Return True if nftlb has farms to load, or may be loading them."""
        try:
            return loading.begun(self._path) or bool(json.loads(self._path.read_text())["farms"])
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError):
            return True

    def verified(self, farm: objects.Farm) -> None:
        """Save this farm: it is in the kernel."""
        known = self._farms.get(farm.name)
        if known is not farm:
            self._farms[farm.name] = farm
            self._changed = self._changed or known != farm

    def farm(self, name: str) -> objects.Farm | None:
        """Return a farm as it was last verified, or None."""
        return self._farms.get(name)

    def gone(self, name: str) -> None:
        """Stop saving this farm."""
        if self._farms.pop(name, None) is not None:
            self._changed = True

    def cut(self, names: Collection[str]) -> None:
        """Stop saving these farms, and take them out of the file as it is."""
        for name in names:
            self.gone(name)
        try:
            farms = json.loads(self._path.read_text())["farms"]
            self._replace(json.dumps(farm) for farm in farms if farm["name"] not in names)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError) as error:
            _log.warning("cannot take farms out of nftlb's start-up file", farms=sorted(names), error=str(error))

    def lost(self, present: Mapping[str, objects.Farm]) -> bool:
        """Return True if a farm that was verified is not present."""
        return not self._farms.keys() <= present.keys()

    def save_if_due(self, now: float, *, present: int, in_conflict: Callable[[objects.Farm], bool], busy: bool) -> bool:
        """Write the file if it is due at ``now``, in seconds of a monotonic clock; return True if so. Raises OSError.

        While changes come without pause, a file without the newest farms is better than an old one, unless it lacks
        most of those ``present``, as after the agent's start. A farm that is ``in_conflict`` has lost an address since
        it was verified, and would be loaded with it.
        """
        if not self._changed or now - self._saved_at < (SAVE_WITHIN_S if busy else SAVE_EVERY_S):
            return False
        if busy and self._lacks_most(present):
            return False
        # Also if writing fails, so that it is not tried at every call.
        self._saved_at = now
        self._write(farm for farm in self._farms.values() if not (busy and in_conflict(farm)))
        self._changed = busy
        return True

    def save(self, *, present: int, in_conflict: Callable[[objects.Farm], bool]) -> None:
        """Write the file now, as ``save_if_due`` does while changes come. Raises OSError."""
        if self._changed and not self._lacks_most(present):
            self._write(farm for farm in self._farms.values() if not in_conflict(farm))

    def _lacks_most(self, present: int) -> bool:
        return len(self._farms) * 10 < present * 9

    def _write(self, farms: Iterable[objects.Farm]) -> None:
        self._replace(text for _, text in self._texts.made(farms))

    def _replace(self, farms: Iterable[str]) -> None:
        temporary = self._path.with_suffix(".new")
        temporary.touch(mode=0o600)
        temporary.write_text(objects.joined(farms))
        temporary.replace(self._path)
