"""nftlb's start-up file: with it a restarted daemon has its farms before it answers."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import structlog

from kube_nftlb.agent.engine.snapshot_file import SnapshotFile
from kube_nftlb.nftlb import loading, objects

_log = structlog.get_logger()


class StartupFile:
    """Holds the farms that were verified in the kernel, and writes them when that is due."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = SnapshotFile[objects.Farm](path, lambda farm: json.dumps(farm.wire()), objects.joined)
        self._farms: dict[str, objects.Farm] = {}
        self._revision: int | None = None
        """Higher after each change; None before the first."""

    def loaded(self) -> None:
        """Note that nftlb answers. Have the file written anew if there is none, as after nftlb ended over it."""
        try:
            loading.done(self._path)
        except OSError as error:
            _log.warning("cannot rename nftlb's start-up file", error=str(error))
        if self._farms and not self._path.exists():
            self._change()

    def has_farms(self) -> bool:
        """Return True if nftlb has farms to load, or may be loading them."""
        try:
            return loading.begun(self._path) or bool(json.loads(self._path.read_text())["farms"])
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError):
            return True

    def read_ingress(self) -> dict[str, objects.Farm]:
        """Return the farms in the mode dsr as an earlier agent has saved them, with what nftlb never returns."""
        try:
            farms = objects.parse(json.loads(self._path.read_text()))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            _log.warning("cannot read nftlb's start-up file", error=repr(error))
            return {}
        return {name: farm for name, farm in farms.items() if farm.ingress}

    def verified(self, farm: objects.Farm) -> None:
        """Save this farm: it is in the kernel."""
        known = self._farms.get(farm.name)
        if known is not farm:
            self._farms[farm.name] = farm
            if known != farm:
                self._change()

    def farm(self, name: str) -> objects.Farm | None:
        """Return a farm as it was last verified, or None."""
        return self._farms.get(name)

    def forget(self, name: str) -> None:
        """Stop saving this farm."""
        if self._farms.pop(name, None) is not None:
            self._change()

    def _change(self) -> None:
        self._revision = (self._revision or 0) + 1

    def remove(self, names: Collection[str]) -> None:
        """Remove farms from the file and from later saves."""
        for name in names:
            self.forget(name)
        try:
            farms = json.loads(self._path.read_text())["farms"]
            self._file.replace(json.dumps(farm) for farm in farms if farm["name"] not in names)
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
        if not self._file.due(self._revision, now, busy=busy) or (busy and self._lacks_most(present)):
            return False
        farms = (farm for farm in self._farms.values() if not (busy and in_conflict(farm)))
        self._file.save(farms, None if busy else self._revision, now)
        return True

    def save(self, present: Iterable[objects.Farm], *, in_conflict: Callable[[objects.Farm], bool]) -> None:
        """Write the file for an nftlb that starts before the next agent. Raises OSError.

        A farm that is not verified yet is saved as it is ``present``; else its clients would wait for that agent.
        """
        unverified = [farm for farm in present if farm.name not in self._farms]
        if unverified or self._file.is_behind(self._revision):
            farms = (farm for farm in (*self._farms.values(), *unverified) if not in_conflict(farm))
            self._file.save(farms, self._revision, 0)

    def _lacks_most(self, present: int) -> bool:
        return len(self._farms) * 10 < present * 9
