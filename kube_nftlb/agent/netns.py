"""The network namespaces on this machine, found without any container runtime: by who uses them, and where they are
mounted. Entering one takes the capability SYS_ADMIN.
"""

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from kube_nftlb.threads import in_thread

_T = TypeVar("_T")

_CLONE_NEWNET = 0x4000_0000

_libc = ctypes.CDLL(None, use_errno=True)


def others() -> dict[int, Path]:
    """Each namespace but the caller's own: its inode number, and a file that stands for it."""
    found: dict[int, Path] = {}
    for path in (*_of_processes(), *_mounted()):
        try:
            found.setdefault(path.stat().st_ino, path)
        except OSError:
            # It has just gone, or is none of our business.
            continue
    found.pop(Path("/proc/self/ns/net").stat().st_ino, None)
    return found


def run_in(descriptor: int, function: Callable[[], _T]) -> _T:
    """Run a function in the namespace of an open file, in a thread of its own. Raises OSError where it cannot enter."""

    def enter_and_run() -> _T:
        _enter(descriptor)
        return function()

    return in_thread(enter_and_run)


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _of_processes() -> Iterator[Path]:
    return (entry / "ns/net" for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _mounted() -> Iterator[Path]:
    """``ip netns`` and container runtimes keep a namespace by mounting it; proc(5) says what a line looks like."""
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        fields = line.split(" ")
        if fields[3].startswith("net:["):
            yield Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4]))
