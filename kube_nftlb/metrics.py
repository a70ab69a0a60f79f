"""Every series that kube-nftlb exports, each declared here and nowhere else."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

SERVICE_CHANGES = Counter(
    "kube_nftlb_service_changes", "Creations, changes and deletions of Services that were seen.", registry=REGISTRY
)
ENDPOINT_SLICE_CHANGES = Counter(
    "kube_nftlb_endpoint_slice_changes",
    "Creations, changes and deletions of EndpointSlices that were seen.",
    registry=REGISTRY,
)
FARMS_APPLIED = Counter(
    "kube_nftlb_farms_applied", "NftlbFarms that the operator created or changed.", ["reason"], registry=REGISTRY
)
FARMS_DELETED = Counter(
    "kube_nftlb_farms_deleted", "NftlbFarms that the operator deleted.", ["reason"], registry=REGISTRY
)
FARMS_REFUSED = Counter(
    "kube_nftlb_farms_refused", "Writes of NftlbFarms that the API server refused for good.", registry=REGISTRY
)
FARM_WRITE_RETRIES = Counter(
    "kube_nftlb_farm_write_retries",
    "Writes of NftlbFarms that failed in a passing way and are repeated.",
    registry=REGISTRY,
)
FARM_STATUSES_WRITTEN = Counter(
    "kube_nftlb_farm_statuses_written", "Statuses of NftlbFarms that the operator wrote.", registry=REGISTRY
)
RELIST_REPAIRS = Counter(
    "kube_nftlb_relist_repairs",
    "Differences that a periodic list found, and repaired, because no watch told of them.",
    ["resource"],
    registry=REGISTRY,
)
WATCH_RESTARTS = Counter(
    "kube_nftlb_watch_restarts",
    "How often all watches of the operator were begun anew after a failure.",
    registry=REGISTRY,
)
LEADER = Gauge(
    "kube_nftlb_leader",
    "1 for the operator that writes, 0 for one that stands by; 1 too where there is no election.",
    registry=REGISTRY,
)
QUEUE_LENGTH = Gauge(
    "kube_nftlb_queue_length",
    "Services (farms) and NftlbFarms (statuses) that wait to be looked at.",
    ["queue"],
    registry=REGISTRY,
)

SYNC_SECONDS = Histogram(
    "kube_nftlb_sync_duration_seconds",
    "How long the agent took for some changed farms, checks included.",
    registry=REGISTRY,
)
NFTLB_REQUEST_SECONDS = Histogram(
    "kube_nftlb_nftlb_request_duration_seconds", "How long nftlb took to answer.", ["method"], registry=REGISTRY
)
DRIFT_REPAIRED = Counter(
    "kube_nftlb_drift_repaired",
    "How often the kernel was found to differ from the plan, and was repaired.",
    registry=REGISTRY,
)
FARMS_FAILED = Counter(
    "kube_nftlb_farms_failed", "Farms that the agent could not program.", ["reason"], registry=REGISTRY
)
NODE_FARMS = Gauge("kube_nftlb_node_farms", "Farms that this node's nftlb has.", registry=REGISTRY)
