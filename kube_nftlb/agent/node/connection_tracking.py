"""The kernel's settings of connection tracking, as kube-proxy makes them, and how full its table is."""

from pathlib import Path
from typing import NamedTuple

import structlog

from kube_nftlb.settings import ConntrackSettings

_FOLDER = "net/netfilter"
_MAX, _COUNT = "nf_conntrack_max", "nf_conntrack_count"
_BUCKETS = Path("/sys/module/nf_conntrack/parameters/hashsize")
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


def apply(settings: ConntrackSettings, sysctl_dir: Path, cpus: int, buckets: Path = _BUCKETS) -> None:
    """Write the settings. What cannot be written is logged: the limit belongs to the host, and may be read-only."""
    todo = {
        sysctl_dir / _FOLDER / name: value for name, value in wanted(settings, cpus, size(sysctl_dir).limit).items()
    }
    fitting = int(todo.get(sysctl_dir / _FOLDER / _MAX, 0)) // _ENTRIES_PER_BUCKET
    if fitting > _read(buckets):
        todo[buckets] = str(fitting)
    for path, value in todo.items():
        try:
            path.write_text(value)
        except OSError as error:
            _log.warning("cannot set the connection tracking", setting=path.name, value=value, error=str(error))


def size(sysctl_dir: Path) -> TableSize:
    """Return how full the table of this network namespace is."""
    return TableSize(_read(sysctl_dir / _FOLDER / _COUNT), _read(sysctl_dir / _FOLDER / _MAX))


def _read(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
