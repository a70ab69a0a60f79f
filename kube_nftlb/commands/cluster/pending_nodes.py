"""The nodes that a farm waits for, by what they report. Pure: no I/O."""

from kube_nftlb import names
from kube_nftlb.commands.cluster.findings import is_pending
from kube_nftlb.commands.view import ClusterView, referred
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.operator.cache.node_record import parse_node


def pending_nodes(raw: JsonObject, cluster: ClusterView) -> set[str]:
    """Return the nodes that have not programmed a farm, or its endpoints, as they are; none of one that is not pending.

    Its conditions decide if it waits, and name only some nodes.
    """
    if not is_pending(raw):
        return set()
    services = {(each.namespace, each.name) for each in referred(raw)}
    changed_at = max((_version(each) for each in cluster.slices if _service(each) in services), default=0)
    seen_at = int((raw.get("status") or {}).get("resourceVersion") or 0)
    nodes = (parse_node(report) for report in cluster.nftlb_nodes)
    return {
        node.name for node in nodes if not node.ready or node.watermark < seen_at or node.slice_watermark < changed_at
    }


def _service(raw: JsonObject) -> tuple[str, str]:
    labels = raw["metadata"].get("labels") or {}
    return raw["metadata"]["namespace"], labels.get(names.LABEL_SLICE_SERVICE, "")


def _version(raw: JsonObject) -> int:
    return int(raw["metadata"]["resourceVersion"])
