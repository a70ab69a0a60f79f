"""The control groups of a lab's containers: they are the machine's, and stay when the lab's processes are gone."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from kube_nftlb import errors

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "kube-nftlb-lab-"
_END_TIMEOUT_S = 10


def name(lab: str, node: str) -> str:
    """What kubelet is given as its root; it is the same in every hierarchy."""
    return f"{_PREFIX}{lab}.{node}"


def create(lab: str, node: str) -> None:
    """Make a node's group in every hierarchy. Raises OSError where the machine does not allow it."""
    for hierarchy in _hierarchies():
        (hierarchy / name(lab, node)).mkdir(exist_ok=True)


def remove(lab: str) -> None:
    """Remove the groups of all nodes of a lab, whose processes have ended. Raises LabError for one that has not."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    for hierarchy in _hierarchies():
        for group in hierarchy.glob(f"{_PREFIX}{lab}.*"):
            while not _remove_tree(group):
                if time.monotonic() > deadline:
                    raise errors.LabError(f"something still runs in {group}: end it, then remove the folder")
                time.sleep(0.05)


def _hierarchies() -> Iterator[Path]:
    """One with version 2 of control groups; with version 1 each controller, or pair of them, has its own."""
    if (_ROOT / "cgroup.controllers").exists():
        yield _ROOT
        return
    for folder in sorted(_ROOT.iterdir()):
        if folder.is_dir() and not folder.is_symlink() and (folder / "cgroup.procs").exists():
            yield folder


def _remove_tree(group: Path) -> bool:
    for child in [*group.iterdir()]:
        if child.is_dir():
            _remove_tree(child)
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()
