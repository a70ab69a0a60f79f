"""The labs that all processes of a run of pytest share: the first test that needs one starts it, the run removes it."""

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from lab.components import API_SERVER, ETCD
from lab.lab import Lab
from lab.state import LabFiles
from tests import distribution

FIGURES_VARIABLE = "KUBE_NFTLB_FAULT_RECORDS"
"""The folder for the figures of a run, if they are kept."""
_HASTE = {
    # It need not outlive a power failure, and a disk that others keep busy would hold up all of its writes.
    ETCD: {"unsafe-no-fsync": "true"},
    # A test that made hundreds of objects deletes its namespaces: by default one object of a kind after the other.
    API_SERVER: {"delete-collection-workers": "16"},
}
"""Flags for labs of tests alone: benchmarks have those that a cluster has by default."""
_RUN = "KUBE_NFTLB_TEST_RUN"
"""The id of the run: that of its first process, which its workers inherit."""
_of_group: dict[str, ExitStack] = {}
"""What ends with tests that stay together, by the name of their group."""


def run_id() -> str:
    """The id of this run of pytest."""
    return os.environ.setdefault(_RUN, str(os.getpid()))


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"kube-nftlb-tests-{run_id()}"


def _name(kind: str) -> str:
    return f"{kind}-{run_id()}"


@contextmanager
def _locked(kind: str) -> Iterator[Path]:
    """Hold the lock of a lab; the file that says how its start ended."""
    _folder().mkdir(exist_ok=True)
    with (_folder() / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _folder() / f"{kind}.json"


def up(name: str, *, settings: Mapping[str, Mapping[str, str]] | None = None, **options: Any) -> Lab:
    """Start a lab as ``Lab.up`` does, but with ``_HASTE`` unless the run's figures are kept."""
    _folder().mkdir(exist_ok=True)
    (_folder() / f"{name}.lab").touch()
    haste = {} if FIGURES_VARIABLE in os.environ else _HASTE
    return Lab.up(name, settings={**(settings or {}), **haste}, **options)


def shared(kind: str, prepare: Callable[[Lab], None] = lambda _: None, **options: Any) -> Lab:
    """Return the lab of this kind, started with ``options`` (see ``up``) and prepared if no process has done so.

    A start that failed is not tried again. Raises AssertionError or LabError.
    """
    with _locked(kind) as outcome:
        if outcome.exists():
            assert json.loads(outcome.read_text())["error"] is None, f"the lab {_name(kind)} did not start"
            return Lab(_name(kind))
        outcome.write_text(json.dumps({"error": "it was interrupted"}))
        with timed(kind):
            lab = up(_name(kind), **options)
            prepare(lab)
        outcome.write_text(json.dumps({"error": None}))
        return lab


def end(kind: str) -> None:
    """Stop a lab of this kind, and forget that there was one."""
    with _locked(kind) as outcome:
        Lab.remove(_name(kind))
        outcome.unlink()


def with_last_of(nodeid: str) -> ExitStack:
    """What ends after the last of the tests that stay together with this one, which one process runs.

    A lab that nobody uses any more takes several per cent of a processor.
    """
    return _of_group.setdefault(distribution.together(nodeid), ExitStack())


def end_group(nodeid: str) -> None:
    """End what was to end with the last of the tests that stay together with this one."""
    with _of_group.pop(distribution.together(nodeid), ExitStack()):
        pass


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Note how many seconds the start of a lab took, for the table at the end of the run."""
    begin = time.monotonic()
    yield
    _folder().mkdir(exist_ok=True)
    with (_folder() / "starts").open("a") as starts:
        starts.write(json.dumps([what, round(time.monotonic() - begin, 2)]) + "\n")


def starts() -> list[tuple[str, float]]:
    """The labs that were started, and the seconds until each was ready."""
    file = _folder() / "starts"
    return (
        [(str(what), float(took)) for what, took in map(json.loads, file.read_text().splitlines())]
        if file.exists()
        else []
    )


def note_leftovers(found: Iterable[str]) -> None:
    """Note what tests have left in a lab that ends before the run."""
    with (_folder() / "kept").open("a") as kept:
        kept.writelines(f"{each}\n" for each in found)


def leftovers() -> list[str]:
    """What was noted so, in any process."""
    file = _folder() / "kept"
    return file.read_text().splitlines() if file.exists() else []


def running() -> list[Lab]:
    """The shared labs that have been started."""
    kinds = sorted(file.stem for file in _folder().glob("*.json"))
    return [Lab(_name(kind)) for kind in kinds if LabFiles.of(_name(kind)).record.exists()]


def remove() -> None:
    """Stop the shared labs, and forget the run."""
    for kind in sorted(file.stem for file in _folder().glob("*.json")):
        Lab.remove(_name(kind))
    shutil.rmtree(_folder(), ignore_errors=True)


def remove_abandoned() -> None:
    """Stop the labs of runs that were killed: they would slow down this one."""
    for folder in Path(tempfile.gettempdir()).glob("kube-nftlb-tests-*"):
        if not Path("/proc", folder.name.rpartition("-")[2]).exists():
            for lab in folder.glob("*.lab"):
                Lab.remove(lab.stem)
            shutil.rmtree(folder, ignore_errors=True)


def logs() -> Iterator[Path]:
    """The logs of the shared labs, whose names end in the run's id, and of this process' own, which end in its id."""
    root = LabFiles.of("any").root.parent
    for run in {run_id(), str(os.getpid())}:
        with suppress(FileNotFoundError):  # another process ends its lab at this moment
            yield from list(root.glob(f"*-{run}/logs/*.log"))
