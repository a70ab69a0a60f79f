"""Metrics of the agents; those of farms and backends only with ``metrics.perFarm`` of the chart, and bounded."""

from kube_nftlb.metrics.registry import LONG, SHORT, counter, gauge, histogram

SYNC_SECONDS = histogram(
    "kube_nftlb_sync_duration_seconds",
    "Time to program a batch of changed farms.",
    SHORT,
    "agent",
)
LAST_SYNC = gauge(
    "kube_nftlb_last_sync_timestamp_seconds",
    "Unix time at which the queue was last found empty and everything programmed; 0 before the first time.",
    "agent",
)
LAST_QUEUED = gauge(
    "kube_nftlb_last_queued_timestamp_seconds",
    "Unix time at which a change was last queued.",
    "agent",
)
LAG_SECONDS = gauge(
    "kube_nftlb_lag_seconds",
    "Age of the oldest change that is not programmed yet; 0 if there is none.",
    "agent",
)
PROGRAMMING_SECONDS = histogram(
    "kube_nftlb_network_programming_duration_seconds",
    "Time from the change of a Pod or Service (the trigger time of its EndpointSlices) until it was verified in this "
    "node's kernel. Changes before the start of the agent do not count.",
    LONG,
    "agent",
)
ENDPOINT_SLICE_CHANGES = counter(
    "kube_nftlb_rules_endpoints_changes_total",
    "Observed creations, updates and deletions of EndpointSlices that farms refer to.",
    "agent",
)
ENDPOINT_SLICE_CHANGES_PENDING = gauge(
    "kube_nftlb_rules_endpoints_changes_pending",
    "Farms whose endpoints have changed, but which are not programmed with them yet.",
    "agent",
)
NODE_FARMS = gauge(
    "kube_nftlb_node_farms",
    "Farms on this node.",
    "agent",
    state="programmed, pending (queued, or not compared with the kernel yet), failed, refused (another farm owns one "
    "of its listeners)",
)
NODE_BACKENDS = gauge(
    "kube_nftlb_node_backends",
    "Backends programmed on this node.",
    "agent",
    state="up (receives new connections), off (only keeps open connections, or serves clients with a session)",
)
NODE_POLICIES = gauge("kube_nftlb_node_policies", "NftlbPolicies programmed on this node.", "agent")
FARMS_WITHOUT_LOCAL_BACKENDS = gauge(
    "kube_nftlb_node_farms_without_local_backends",
    "Farms with trafficPolicy Local and no backend on this node, which drops their connections.",
    "agent",
)
FARMS_FAILED = counter(
    "kube_nftlb_farms_failed_total",
    "Times that a farm could not be programmed as requested.",
    "agent",
    reason="Invalid, Refused, KernelFeatureMissing, Unsupported, AddressInUse, PolicyMissing, or another reason of "
    "failedFarms",
)
DRIFT_REPAIRED = counter(
    "kube_nftlb_drift_repaired_total",
    "Times that drift in the kernel was repaired.",
    "agent",
)
KERNEL_COMPARISONS = counter(
    "kube_nftlb_kernel_comparisons_total",
    "Comparisons of a farm, or of the shared parts of the ruleset, with the kernel.",
    "agent",
    result=("same", "different"),
)
STALE_CONNECTIONS_REMOVED = counter(
    "kube_nftlb_stale_connections_removed_total",
    "Stale connections and sessions removed after their backend was gone or down. Untranslated: connections from "
    "before the farm existed, or from while its rules were away. EndpointGone: TCP connections that "
    "farms with onGone cut had to endpoints that are gone. Unanswered: first packets over TCP to such endpoints.",
    "agent",
    reason=("BackendGone", "BackendDown", "Untranslated", "EndpointGone", "Unanswered"),
)
CONNTRACK_ENTRIES = gauge("kube_nftlb_conntrack_entries", "Connections that the node's kernel tracks.", "agent")
CONNTRACK_LIMIT = gauge(
    "kube_nftlb_conntrack_entries_limit", "Connections that it tracks at most; 0 if unknown.", "agent"
)
AFFINITY_CLIENTS = gauge(
    "kube_nftlb_affinity_clients",
    "Clients that the engine nftables remembers (session affinity) for the namespace that has most of them, in one "
    "family. The agent's log names a namespace above 80 % of the limit.",
    "agent",
)
AFFINITY_LIMIT = gauge(
    "kube_nftlb_affinity_clients_limit",
    "Clients that it remembers at most for each namespace and family; more are served, and not remembered.",
    "agent",
)
KUBE_PROXY_RULES = gauge(
    "kube_nftlb_node_kube_proxy_rules", "1 if the node has rules of kube-proxy in nftables or IPVS, else 0.", "agent"
)
NFTLB_UP = gauge("kube_nftlb_nftlb_up", "1 if nftlb responded to the last request, else 0.", "agent")
NFTLB_STARTS = counter("kube_nftlb_nftlb_restarts_total", "Detected restarts of nftlb.", "agent")
NFTLB_REQUEST_SECONDS = histogram(
    "kube_nftlb_nftlb_request_duration_seconds",
    "Response time of nftlb.",
    SHORT,
    "agent",
    method=("GET", "POST", "PUT", "PATCH", "DELETE"),
)
NFTLB_REQUESTS_FAILED = counter(
    "kube_nftlb_nftlb_requests_failed_total",
    "Requests that nftlb did not answer, or refused.",
    "agent",
    reason=("Unreachable", "Refused"),
)
NODE_ADDRESSES = gauge(
    "kube_nftlb_node_addresses",
    "Addresses of NftlbAddressPools, as this node sees them; none if addresses.enabled of the chart is off.",
    "agent",
    pool="the name of the pool, empty once it is gone",
    state="announced (by this node), in_use (another host has them), no_link (none of its interfaces has "
    "their subnet), blocked (it would not announce them for another reason, even if no other node did: see "
    "status.addresses of its NftlbNode), standby (all others)",
)
BGP_SESSIONS = gauge(
    "kube_nftlb_bgp_sessions",
    "BGP sessions with the routers that NftlbBGPPeers name; none if addresses.bgp.enabled of the chart is off.",
    "agent",
    state=("established", "down"),
)
ADDRESSES_TAKEN = counter(
    "kube_nftlb_addresses_taken_total",
    "Times that this node began to hold an address.",
    "agent",
    before=("nobody", "node"),
)


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
