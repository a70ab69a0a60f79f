"""Kubernetes objects for tests: each builder fills in what a test does not care about.

``raw_...`` returns an object as the API server sends it, the same name without ``raw_`` returns it parsed;
``tests.builders.manifests`` has what a test applies to a cluster.
"""

from tests.builders.farms import Grouped, farm, grouped_farm, raw_backend, raw_farm, raw_route_farm, raw_service_farm
from tests.builders.nodes import raw_nftlb_node, raw_node
from tests.builders.pods import raw_gated_pod, raw_pod
from tests.builders.policies import raw_policy
from tests.builders.services import raw_service, service
from tests.builders.slices import endpoint, endpoint_slice, raw_slice

__all__ = [
    "Grouped",
    "endpoint",
    "endpoint_slice",
    "farm",
    "grouped_farm",
    "raw_backend",
    "raw_farm",
    "raw_gated_pod",
    "raw_nftlb_node",
    "raw_node",
    "raw_pod",
    "raw_policy",
    "raw_route_farm",
    "raw_service",
    "raw_service_farm",
    "raw_slice",
    "service",
]
