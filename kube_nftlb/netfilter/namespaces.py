"""Linux namespaces: creating them, running a function in one, and finding the network namespaces of this machine.

Entering a namespace takes the capability SYS_ADMIN. ``unshare`` and ``setns`` are called through ctypes because
``os.unshare`` and ``os.setns`` came with Python 3.12, and Debian 12 has 3.11.
"""

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raise OSError with errno if a call of ``libc`` returned anything but 0."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move the calling thread to new namespaces (to a new PID namespace: its children). Raises OSError."""
    check(libc.unshare(flags), "unshare")


def become_mapped_root(uid: int, gid: int) -> None:
    """Map the given user and group to root in the user namespace just created; outside nothing changes."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def in_thread(function: Callable[[], _T]) -> _T:
    """Run a function in a fresh thread, and return or raise what it does.

    What the function does to its thread, such as entering a namespace, ends with the thread.
    """
    with ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(function).result()


def in_namespace(namespace: Path | int, function: Callable[[], _T]) -> _T:
    """Run a function in a network namespace, given as a path or an open descriptor. Raises OSError if entering fails.

    A fresh thread does it: sockets and child processes made by the function stay in that namespace, the caller's
    thread never leaves its own. In there, /proc/sys/net is that of the namespace.
    """

    def enter_and_run() -> _T:
        descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC) if isinstance(namespace, Path) else namespace
        try:
            check(libc.setns(descriptor, CLONE_NEWNET), f"entering {namespace}")
        finally:
            if descriptor is not namespace:
                os.close(descriptor)
        return function()

    return in_thread(enter_and_run)


def other_networks() -> dict[int, Path]:
    """Return every network namespace but the caller's own: its inode number, and a file that refers to it.

    Found without any container runtime: by the processes in them, and by their mounts.
    """
    found: dict[int, Path] = {}
    for path in (*_of_processes(), *_mounted()):
        try:
            found.setdefault(path.stat().st_ino, path)
        except OSError:
            # The process or mount is gone, or may not be inspected.
            continue
    found.pop(Path("/proc/self/ns/net").stat().st_ino, None)
    return found


def _of_processes() -> Iterator[Path]:
    return (entry / "ns/net" for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _mounted() -> Iterator[Path]:
    """Yield the mount points of namespaces: ``ip netns`` and container runtimes keep them so (see proc(5))."""
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        fields = line.split(" ")
        if fields[3].startswith("net:["):
            yield Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4]))
