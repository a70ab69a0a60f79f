"""Metrics of the agents about farms and backends: only with ``metrics.perFarm`` of the chart, and bounded."""

from kube_nftlb.metrics.registry import counter, gauge

_FARM = {"farm_namespace": "namespace of the farm", "farm": "name of the farm"}
_BACKEND = {**_FARM, "backend": "name of the pod or backend; the address of one that is gone"}
_DIRECTION = "sent (by clients), answered (by backends)"

FARM_CONNECTIONS = counter(
    "kube_nftlb_farm_connections_total", "New connections to a farm that this node translated.", "agent", **_FARM
)
FARM_OPEN_CONNECTIONS = gauge(
    "kube_nftlb_farm_open_connections", "Open connections to a farm that this node translates.", "agent", **_FARM
)
FARM_BYTES = counter(
    "kube_nftlb_farm_bytes_total",
    "Bytes of the packets of these connections.",
    "agent",
    **_FARM,
    direction=_DIRECTION,
)
BACKEND_CONNECTIONS = counter(
    "kube_nftlb_backend_connections_total",
    "New connections that this node translated to a backend of a farm.",
    "agent",
    **_BACKEND,
)
BACKEND_OPEN_CONNECTIONS = gauge(
    "kube_nftlb_backend_open_connections",
    "Open connections that this node translates to a backend of a farm.",
    "agent",
    **_BACKEND,
)
BACKEND_BYTES = counter(
    "kube_nftlb_backend_bytes_total",
    "Bytes of the packets of these connections.",
    "agent",
    **_BACKEND,
    direction=_DIRECTION,
)
TRAFFIC_FARMS = gauge(
    "kube_nftlb_traffic_farms",
    "Farms with traffic that metrics.perFarm selects.",
    "agent",
    state="exported (with series of their own), omitted (less busy than those)",
)
TRAFFIC_EVENTS_LOST = counter(
    "kube_nftlb_traffic_events_lost_total",
    "Times that the kernel had more events of connections than could be counted. Short connections may be missing.",
    "agent",
)
TRAFFIC_READING_SECONDS = gauge(
    "kube_nftlb_traffic_table_seconds",
    "Time that it took to read the connections of the node. Ten times as long passes before the next time.",
    "agent",
)
