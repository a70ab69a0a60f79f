"""Count traffic, and set the metrics of farms and backends: those of the busiest, as many as the settings allow."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import structlog
from prometheus_client import Counter, Gauge

from kube_nftlb import addresses, metrics
from kube_nftlb.agent.traffic.by_farm import Backend, FarmCounts, by_farm
from kube_nftlb.agent.traffic.slots import SeriesSlots
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener
from kube_nftlb.netfilter.traffic.process import counting_process
from kube_nftlb.netfilter.traffic.report import Report, shares
from kube_nftlb.netfilter.traffic.tally import Counts
from kube_nftlb.settings import TrafficSettings

NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
"""The label that each Namespace has of its own: the selector may ask for it as if farms had it."""
_SENT, _ANSWERED = "sent", "answered"
_NAMED_EVERY_S: Final = 60
"""Another pod may get the address of one that is gone, as those of a DaemonSet on the host's network do."""
_COUNTED_EVERY_S: Final = 5.0
_RETRY_S: Final = 30.0

_log = structlog.get_logger()


class Farms(Protocol):
    """The farms of this node."""

    def owner(self, listener: Listener) -> FarmKey | None:
        """Return the farm that has a listener."""

    def get(self, key: FarmKey) -> Farm | None:
        """Return a farm as it was last valid, or None."""

    def resolved(self, key: FarmKey) -> Farm | None:
        """Return a farm with its backends, or None."""


class _Metrics(NamedTuple):
    new: Counter
    bytes: Counter
    open: Gauge


_FARM = _Metrics(metrics.FARM_CONNECTIONS, metrics.FARM_BYTES, metrics.FARM_OPEN_CONNECTIONS)
_BACKEND = _Metrics(metrics.BACKEND_CONNECTIONS, metrics.BACKEND_BYTES, metrics.BACKEND_OPEN_CONNECTIONS)


class _Backends:
    """The backends of a farm that have series."""

    def __init__(self, most: int) -> None:
        self.slots: SeriesSlots[str] = SeriesSlots(most)
        self.names: dict[Backend, str] = {}
        self.named_at = float("-inf")
        self.shown: frozenset[str] = frozenset()


class TrafficSeries:
    """The series of this node."""

    def __init__(self, farms: Farms, settings: TrafficSettings, clock: Callable[[], float]) -> None:
        self._farms = farms
        self._settings = settings
        self._clock = clock
        self._slots: SeriesSlots[FarmKey] = SeriesSlots(settings.farms)
        self._shown: dict[FarmKey, _Backends] = {}

    def add(self, report: Report) -> None:
        """Add what was counted."""
        found = by_farm(report.listeners, self._farms.owner)
        wanted = {key: each for key, each in found.items() if not self._unwanted(key)}
        now = self._clock()
        share = shares({key: each.counts for key, each in wanted.items()})
        self._slots.update(share, report.seconds, now, self._unwanted)
        for key in self._shown.keys() - self._slots.keys:
            self._remove(key)
        for key in self._slots.keys:
            self._show(key, wanted.get(key, FarmCounts(Counts(), {})), report.seconds, now)
        metrics.set_states(
            metrics.TRAFFIC_FARMS,
            {"exported": len(self._shown), "omitted": len(wanted.keys() - self._shown.keys())},
            ("exported", "omitted"),
        )
        metrics.TRAFFIC_EVENTS_LOST.inc(report.lost)
        metrics.TRAFFIC_READING_SECONDS.set(report.reading_s)

    def _unwanted(self, key: FarmKey) -> bool:
        """Return True if a farm is gone, or not selected."""
        farm = self._farms.get(key)
        labels = {**farm.metadata.labels, NAMESPACE_LABEL: key.namespace} if farm is not None else {}
        return farm is None or not self._settings.selector.selects(labels)

    def _show(self, key: FarmKey, farm: FarmCounts, seconds: float, now: float) -> None:
        backends = self._shown.get(key)
        if backends is None:
            backends = self._shown[key] = _Backends(self._settings.backends)
        _count(_FARM, key, farm.counts)
        counts: dict[str, Counts] = {}
        for name, each in self._named(key, backends, farm.backends, now):
            counts[name] = counts.get(name, Counts()).plus(each)
        known = set(backends.names.values())
        backends.slots.update(shares(counts), seconds, now, lambda name: name not in known)
        for name in backends.shown - backends.slots.keys:
            _forget(_BACKEND, (*key, name))
        backends.shown = backends.slots.keys
        for name in backends.shown:
            _count(_BACKEND, (*key, name), counts.get(name, Counts()))

    def _named(
        self, key: FarmKey, backends: _Backends, counts: Mapping[Backend, Counts], now: float
    ) -> Iterable[tuple[str, Counts]]:
        """Yield the traffic of each backend of a farm, by its name."""
        is_old = now - backends.named_at >= _NAMED_EVERY_S
        if is_old or any(address not in backends.names for address in counts):
            backends.named_at = now
            farm = self._farms.resolved(key)
            names = {(each.ip, each.port or 0): each.name for each in farm.spec.backends} if farm is not None else {}
            # Backends that are gone have connections for a while, and keep their names.
            old = backends.names
            backends.names = {
                address: names.get(address)
                or names.get((address[0], 0))
                or old.get(address)
                or addresses.with_port(*address)
                for address in counts.keys() | names.keys()
            }
        return ((backends.names[address], each) for address, each in counts.items())

    def _remove(self, key: FarmKey) -> None:
        _forget(_FARM, key)
        for name in self._shown.pop(key).shown:
            _forget(_BACKEND, (*key, name))


def _count(series: _Metrics, labels: tuple[str, ...], counts: Counts) -> None:
    series.new.labels(*labels).inc(counts.new)
    series.open.labels(*labels).set(counts.open)
    series.bytes.labels(*labels, _SENT).inc(counts.sent)
    series.bytes.labels(*labels, _ANSWERED).inc(counts.answered)


def _forget(series: _Metrics, labels: tuple[str, ...]) -> None:
    series.new.remove(*labels)
    series.open.remove(*labels)
    series.bytes.remove(*labels, _SENT)
    series.bytes.remove(*labels, _ANSWERED)


async def count_traffic(add: Callable[[Report], None]) -> None:
    """Pass on the reports of the process that counts, until cancelled.

    It is started again if it ends; without it the agent serves as well.
    """
    accounting = True
    while True:
        try:
            async with counting_process(
                (sys.executable, "-m", "kube_nftlb.netfilter.traffic", str(_COUNTED_EVERY_S))
            ) as process:
                async for each in process.reports():
                    if accounting and not each.bytes_counted:
                        _log.warning(
                            "bytes are not counted: net.netfilter.nf_conntrack_acct is 0, and cannot be written"
                        )
                    accounting = each.bytes_counted
                    add(each)
                _, error = await process.outcome()
                _log.warning("the count of traffic ended, starting it again", error=error, seconds=_RETRY_S)
        except Exception:
            # Whatever it is: the agent has more important work.
            _log.exception("cannot count traffic, starting again", seconds=_RETRY_S)
        await asyncio.sleep(_RETRY_S)
