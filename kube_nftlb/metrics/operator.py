"""Metrics of the operator."""

from kube_nftlb.metrics.registry import LONG, SHORT, counter, gauge, histogram

_QUEUES = "farms (Services to reconcile), statuses (farms whose status to update)"

SERVICE_CHANGES = counter(
    "kube_nftlb_rules_services_changes_total",
    "Observed creations, updates and deletions of Services.",
    "operator",
)
SERVICE_CHANGES_PENDING = gauge(
    "kube_nftlb_rules_services_changes_pending",
    "Changes of Services whose farms are not written yet.",
    "operator",
)
SERVICE_SYNC_SECONDS = histogram(
    "kube_nftlb_service_sync_duration_seconds",
    "Time to reconcile a Service: to build its farms and write the changes.",
    SHORT,
    "operator",
)
FARMS_APPLIED = counter(
    "kube_nftlb_farms_applied_total",
    "NftlbFarms that the operator created or updated.",
    "operator",
    reason=("Created", "SpecChanged", "OwnerChanged"),
)
FARMS_DELETED = counter(
    "kube_nftlb_farms_deleted_total",
    "NftlbFarms that the operator deleted.",
    "operator",
    reason=("ServiceGone", "ServiceNotServed", "PortGone", "RouteGone"),
)
FARMS_REFUSED = counter(
    "kube_nftlb_farms_refused_total", "Writes of NftlbFarms that the API server rejected as invalid.", "operator"
)
FARM_WRITE_RETRIES = counter(
    "kube_nftlb_farm_write_retries_total",
    "Times that the writes for a Service failed temporarily and were retried.",
    "operator",
)
FARM_WRITES_FAILING = gauge(
    "kube_nftlb_farm_writes_failing",
    "Services, and farms of routes, whose writes have failed eight times in a row, for some ten seconds.",
    "operator",
)
FARM_STATUSES_WRITTEN = counter("kube_nftlb_farm_statuses_written_total", "Status updates of NftlbFarms.", "operator")
FARM_STATUS_SECONDS = histogram(
    "kube_nftlb_farm_status_duration_seconds",
    "Time for which the status of an NftlbFarm showed an earlier state, until it was written.",
    LONG,
    "operator",
)
FARM_STATUSES_PER_SECOND = gauge(
    "kube_nftlb_farm_statuses_per_second",
    "Rate at which status updates of NftlbFarms are written at most, as the API server allows.",
    "operator",
)
SERVICE_STATUSES_WRITTEN = counter(
    "kube_nftlb_service_statuses_written_total", "Conditions written into the status of Services.", "operator"
)
ADDRESSES_WRITTEN = counter(
    "kube_nftlb_addresses_written_total",
    "Times that addresses of NftlbAddressPools were written into the status of a Service, or why it has none.",
    "operator",
)
ADDRESSES = gauge(
    "kube_nftlb_addresses",
    "Addresses of NftlbAddressPools that are accepted.",
    "operator",
    pool="the name of the pool",
    family="ipv4, ipv6",
    state="used (a Service has it), free (a Service can get it)",
)
SERVICES_WITHOUT_ADDRESS = gauge(
    "kube_nftlb_services_without_address",
    "Services that lack an address of an NftlbAddressPool which they ask for.",
    "operator",
    reason="PoolExhausted, NoPool, AddressTaken, NotAllowed",
)
FARMS = gauge(
    "kube_nftlb_farms",
    "NftlbFarms in the cluster.",
    "operator",
    state="programmed (on every node), pending (accepted, but not on every node yet), refused (invalid, or another "
    "farm owns one of its listeners)",
)
BACKENDS = gauge(
    "kube_nftlb_backends", "Backends of all NftlbFarms in the cluster.", "operator", state="ready, not_ready"
)
NODES = gauge(
    "kube_nftlb_nodes",
    "Nodes with an NftlbNode.",
    "operator",
    state="ready, not_ready (its agent reports that it cannot work), silent (its agent has not reported for minutes)",
)
GATED_PODS_WAITING = gauge(
    "kube_nftlb_gated_pods_waiting",
    "Pods that lack nothing but the readiness gate kube-nftlb.io/programmed to be ready.",
    "operator",
)
READINESS_GATE_SECONDS = histogram(
    "kube_nftlb_readiness_gate_duration_seconds",
    "Time from when a Pod lacked nothing but the readiness gate until the gate was set.",
    LONG,
    "operator",
)
RELIST_REPAIRS = counter(
    "kube_nftlb_relist_repairs_total",
    "Differences that a periodic list found and repaired, missed by watches.",
    "operator",
    resource=("services", "endpointslices", "nftlbfarms", "nftlbnodes", "nftlbpolicies"),
)
LAST_LIST = gauge(
    "kube_nftlb_last_list_timestamp_seconds",
    "Unix time of the operator's last complete list.",
    "operator",
)
LEADER = gauge(
    "kube_nftlb_leader",
    "1 for the leader, 0 for a standby replica. Always 1 without leader election.",
    "operator",
)
WATCH_RESTARTS = counter(
    "kube_nftlb_watch_restarts_total",
    "Restarts of all watches of kopf after a failure.",
    "operator",
)
QUEUE_LENGTH = gauge("kube_nftlb_queue_length", "Number of keys in the queue.", "operator", queue=_QUEUES)
QUEUE_STALLED_SECONDS = gauge(
    "kube_nftlb_queue_stalled_seconds",
    "Time without progress of a queue that has keys due; 0 if none is.",
    "operator",
    queue=_QUEUES,
)
