"""Mounts of the lab's mount namespace, and network namespaces kept alive by a mount."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kube_nftlb.netfilter.namespaces import CLONE_NEWNET, check, in_thread, libc, unshare

_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_MS_BIND = 4096
_MS_REC_PRIVATE = 0x4000 | 0x4_0000
_MNT_DETACH = 2


@contextmanager
def on_first_cpu() -> Iterator[None]:
    """Run this thread, and the programs that it starts meanwhile, on one processor, the same each time.

    Linux mounts a mount namespace only inside one with a lower number, and since 6.18 numbers are handed out in batches
    for each processor. A namespace made on one processor may have a lower number than an earlier one of another.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def make_mounts_private() -> None:
    """Stop mounts from propagating to or from other mount namespaces. Raises OSError."""
    check(libc.mount(None, b"/", None, _MS_REC_PRIVATE, None), "making mounts private")


def mount_proc() -> None:
    """Mount the /proc of this PID namespace. Raises OSError."""
    check(libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID_NODEV_NOEXEC, None), "mounting /proc")


def mount_tmpfs(target: Path) -> None:
    """Mount an empty tmpfs with mode 0700. Raises OSError."""
    check(libc.mount(b"tmpfs", bytes(target), b"tmpfs", 0, b"mode=0700"), f"mounting a tmpfs on {target}")


def create_network(path: Path) -> None:
    """Create a network namespace that lives as long as its mount at ``path``. Raises OSError."""

    def make() -> None:
        unshare(CLONE_NEWNET)
        bind_network(path, Path("/proc/thread-self/ns/net"))

    in_thread(make)


def bind_network(path: Path, source: Path) -> None:
    """Mount an existing network namespace, named by a file, at ``path``. Raises OSError."""
    path.touch()
    check(libc.mount(bytes(source), bytes(path), None, _MS_BIND, None), f"mounting {path}")


def remove_network(path: Path) -> None:
    """Undo create_network or bind_network; the kernel removes the namespace with its last user. Raises OSError."""
    check(libc.umount2(bytes(path), _MNT_DETACH), f"unmounting {path}")
    path.unlink()
