"""Linux namespaces: entering them, making them, and running a function in one of them."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kube_nftlb.threads import in_thread

_T = TypeVar("_T")

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_MS_BIND = 4096
_MS_REC_PRIVATE = 0x4000 | 0x4_0000
_MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move the calling thread to new namespaces (to a new PID namespace: its children). Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def become_mapped_root(uid: int, gid: int) -> None:
    """In a user namespace just made: be root in there, and nobody else outside than before."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def make_mounts_private() -> None:
    """Keep all mounts of this mount namespace to itself. Raises OSError."""
    _check(_libc.mount(None, b"/", None, _MS_REC_PRIVATE, None), "making mounts private")


def mount_proc() -> None:
    """Mount a /proc that shows this PID namespace. Raises OSError."""
    _check(_libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID_NODEV_NOEXEC, None), "mounting /proc")


def mount_tmpfs(target: Path) -> None:
    """Mount an empty tmpfs, for root only. Raises OSError."""
    _check(_libc.mount(b"tmpfs", bytes(target), b"tmpfs", 0, b"mode=0700"), f"mounting a tmpfs on {target}")


def create_network(path: Path) -> None:
    """Make a network namespace that stays for as long as it is mounted at path. Raises OSError."""

    def make() -> None:
        unshare(CLONE_NEWNET)
        bind_network(path, Path("/proc/thread-self/ns/net"))

    in_thread(make)


def bind_network(path: Path, source: Path) -> None:
    """Mount a network namespace (a file that stands for one) at path too. Raises OSError."""
    path.touch()
    _check(_libc.mount(bytes(source), bytes(path), None, _MS_BIND, None), f"mounting {path}")


def remove_network(path: Path) -> None:
    """Undo create_network or bind_network; the kernel drops the namespace with its last user. Raises OSError."""
    _check(_libc.umount2(bytes(path), _MNT_DETACH), f"unmounting {path}")
    path.unlink()


def in_namespace(path: Path, function: Callable[[], _T]) -> _T:
    """Run a function in a network namespace and hand back what it returns or raises.

    A fresh thread does it: sockets and child processes made by the function stay in that namespace, the caller's
    thread never leaves its own. In there, /proc/sys/net is that of the namespace.
    """

    def enter_and_run() -> _T:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(descriptor, CLONE_NEWNET), f"entering {path}")
        finally:
            os.close(descriptor)
        return function()

    return in_thread(enter_and_run)
