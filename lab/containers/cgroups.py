"""The control groups of a lab's containers. They belong to the machine and outlive the lab's processes."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from kube_nftlb import errors

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "kube-nftlb-lab-"
_END_TIMEOUT_S = 10


def name(lab: str, node: str) -> str:
    """Return the kubelet's root control group, which has the same path in every hierarchy."""
    return f"{_PREFIX}{lab}.{node}"


def create(lab: str, node: str) -> None:
    """Create a node's control group in every hierarchy. Raises OSError if the machine does not permit it."""
    for hierarchy in _hierarchies():
        (hierarchy / name(lab, node)).mkdir(exist_ok=True)


def remove(lab: str) -> None:
    """Remove the control groups of all nodes of a stopped lab. Raises LabError if one still has processes."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    for hierarchy in _hierarchies():
        for group in hierarchy.glob(f"{_PREFIX}{lab}.*"):
            while not _remove_tree(group):
                if time.monotonic() > deadline:
                    raise errors.LabError(f"processes still run in {group}: stop them, then remove the folder")
                time.sleep(0.05)


def _hierarchies() -> Iterator[Path]:
    """Return the hierarchies: one for version 2; one per controller or pair of controllers for version 1."""
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
