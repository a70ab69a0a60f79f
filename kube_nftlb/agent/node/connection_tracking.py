"""The kernel's settings of connection tracking, as kube-proxy makes them, and how full its table is."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import structlog

from kube_nftlb.agent.clock import Clock
from kube_nftlb.settings import ConntrackSettings

_FOLDER = "net/netfilter"
_MAX, _COUNT, _BUCKETS = "nf_conntrack_max", "nf_conntrack_count", "nf_conntrack_buckets"
_LOOK_EVERY_S = 2.0
_ENTRIES_PER_BUCKET = 4
"""kube-proxy's ratio."""

_log = structlog.get_logger()


class TableSize(NamedTuple):
    """The number of connections that are tracked, and the limit; 0 if unknown."""

    entries: int
    limit: int


def wanted(settings: ConntrackSettings, cpus: int, limit: int) -> dict[str, str]:
    """Return the settings to write, by name. ``limit`` is that of connections now, which is never lowered. Pure."""
    found = {}
    most = max(settings.minimum, settings.max_per_core * cpus) if settings.max_per_core else 0
    if most > limit:
        found[_MAX] = str(most)
    if settings.tcp_established_s:
        found["nf_conntrack_tcp_timeout_established"] = str(settings.tcp_established_s)
    if settings.tcp_close_wait_s:
        found["nf_conntrack_tcp_timeout_close_wait"] = str(settings.tcp_close_wait_s)
    if settings.tcp_be_liberal:
        found["nf_conntrack_tcp_be_liberal"] = "1"
    if settings.count_bytes:
        found["nf_conntrack_acct"] = "1"
    return found


async def apply_once_loaded(settings: ConntrackSettings, sysctl_dir: Path, cpus: int, clock: Clock) -> None:
    """Write the settings once the kernel has them; run until cancelled.

    It has none before something has loaded its module, which at boot may be the agent's own rules.
    """
    while not (sysctl_dir / _FOLDER / _MAX).exists():
        await clock.sleep(_LOOK_EVERY_S)
    apply(settings, sysctl_dir, cpus)
    await asyncio.Event().wait()


def apply(settings: ConntrackSettings, sysctl_dir: Path, cpus: int) -> None:
    """Write the settings. What cannot be written is logged: the limit belongs to the host, and may be read-only."""
    folder = sysctl_dir / _FOLDER
    todo = wanted(settings, cpus, size(sysctl_dir).limit)
    fitting = int(todo.get(_MAX, 0)) // _ENTRIES_PER_BUCKET
    if fitting > _read(folder / _BUCKETS):
        todo[_BUCKETS] = str(fitting)
    for name, value in todo.items():
        try:
            (folder / name).write_text(value)
        except OSError as error:
            _log.warning("cannot set the connection tracking", setting=name, value=value, error=str(error))


def size(sysctl_dir: Path) -> TableSize:
    """Return how full the table of this network namespace is."""
    return TableSize(_read(sysctl_dir / _FOLDER / _COUNT), _read(sysctl_dir / _FOLDER / _MAX))


def _read(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
