"""Set the operator's gauges when they are read."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import get_args

from kube_nftlb import metrics
from kube_nftlb.api.base import FAMILIES
from kube_nftlb.operator.addresses.book import Book
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.sync.reconciler import Reconciler
from kube_nftlb.reasons import AddressProblem

_LABELLED = (
    *(metrics.FARMS, metrics.BACKENDS, metrics.NODES, metrics.QUEUE_LENGTH, metrics.QUEUE_STALLED_SECONDS),
    *(metrics.ADDRESSES, metrics.SERVICES_WITHOUT_ADDRESS),
)
_PLAIN = (
    *(metrics.SERVICE_CHANGES_PENDING, metrics.FARM_WRITES_FAILING),
    *(metrics.FARM_STATUSES_PER_SECOND, metrics.GATED_PODS_WAITING),
)


def refresh(ingest: Ingest, reconciler: Reconciler, waiting: Iterable[str] = (), *, leads: bool) -> None:
    """Set all gauges, in a millisecond with thousands of farms. ``waiting`` has a reason for each missing address.

    Only the leader has them: figures of the cluster would count twice.
    """
    if not leads:
        # It may have led before: kopf starts anew in the same process.
        for labelled in _LABELLED:
            labelled.clear()
        for plain in _PLAIN:
            plain.set(0)
        return
    cache = ingest.cache
    metrics.SERVICE_CHANGES_PENDING.set(ingest.changes.pending())
    farms, ready, total = 0, 0, 0
    for farm in cache.farms.values():
        # To resolve all references would take too long; the statuses have the result.
        counted = farm if farm.reference is None else farm.status
        farms, ready, total = farms + 1, ready + counted.ready, total + counted.total
    unfinished, refused = len(cache.progress.farms), len(cache.progress.refused)
    states = {"programmed": farms - unfinished - refused, "pending": unfinished, "refused": refused}
    metrics.set_states(metrics.FARMS, states, states)
    backends = {"ready": ready, "not_ready": total - ready}
    metrics.set_states(metrics.BACKENDS, backends, backends)
    nodes = Counter(
        "silent" if node.silent else "ready" if node.ready else "not_ready" for node in cache.nodes.values()
    )
    metrics.set_states(metrics.NODES, nodes, ("ready", "not_ready", "silent"))
    for name, queue in (("farms", reconciler.services.queue), ("statuses", reconciler.statuses.queue)):
        metrics.QUEUE_LENGTH.labels(name).set(len(queue))
        metrics.QUEUE_STALLED_SECONDS.labels(name).set(queue.stalled_s())
    failing = (reconciler.services.backoff, reconciler.routes.backoff)
    metrics.FARM_WRITES_FAILING.set(sum(each.lasting() for each in failing))
    metrics.FARM_STATUSES_PER_SECOND.set(reconciler.statuses.budget.per_s)
    metrics.GATED_PODS_WAITING.set(cache.gates.count())
    if cache.addresses is not None:
        _refresh_addresses(cache.addresses, Counter(waiting))


def _refresh_addresses(book: Book, waiting: Mapping[str, int]) -> None:
    metrics.ADDRESSES.clear()
    for pool in book.accepted:
        for family in FAMILIES:
            if pool.has(family):
                metrics.ADDRESSES.labels(pool.name, family, "used").set(book.used(pool, family))
                metrics.ADDRESSES.labels(pool.name, family, "free").set(max(book.free(pool, family), 0))
    for reason in get_args(AddressProblem):
        metrics.SERVICES_WITHOUT_ADDRESS.labels(reason).set(waiting.get(reason, 0))
