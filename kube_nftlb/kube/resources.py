"""The kinds of objects that kube-nftlb reads and writes, and their paths at the API server."""

from typing import Any, NamedTuple

from kube_nftlb import names

JsonObject = dict[str, Any]


class Resource(NamedTuple):
    """A kind of object at the API server. The core group is ``""``."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def custom(self) -> bool:
        """True for kube-nftlb's own custom resources."""
        return self.group == names.GROUP

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of one object, or of the collection if ``name`` is None. Raises ValueError for ""."""
        if name == "":
            # To the API server this would be the collection.
            raise ValueError(f"the name of one of {self.plural} is empty")
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace is not None:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        parts.extend(part for part in (name, subresource) if part is not None)
        return "/".join(parts)


SERVICES = Resource("", "v1", "Service", "services")
PODS = Resource("", "v1", "Pod", "pods")
NODES = Resource("", "v1", "Node", "nodes", namespaced=False)
NAMESPACES = Resource("", "v1", "Namespace", "namespaces", namespaced=False)
CONFIG_MAPS = Resource("", "v1", "ConfigMap", "configmaps")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
EVENTS = Resource("", "v1", "Event", "events")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
SERVICE_CIDRS = Resource("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", namespaced=False)
IP_ADDRESSES = Resource("networking.k8s.io", "v1", "IPAddress", "ipaddresses", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases")
DAEMON_SETS = Resource("apps", "v1", "DaemonSet", "daemonsets")
DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")
FARMS = Resource(names.GROUP, "v1alpha1", "NftlbFarm", "nftlbfarms")
POLICIES = Resource(names.GROUP, "v1alpha1", "NftlbPolicy", "nftlbpolicies")
NFTLB_NODES = Resource(names.GROUP, "v1alpha1", "NftlbNode", "nftlbnodes", namespaced=False)
ADDRESS_POOLS = Resource(names.GROUP, "v1alpha1", "NftlbAddressPool", "nftlbaddresspools", namespaced=False)
BGP_PEERS = Resource(names.GROUP, "v1alpha1", "NftlbBGPPeer", "nftlbbgppeers", namespaced=False)
GATEWAY_CLASSES = Resource(names.GATEWAY_API, "v1", "GatewayClass", "gatewayclasses", namespaced=False)
GATEWAYS = Resource(names.GATEWAY_API, "v1", "Gateway", "gateways")
LISTENER_SETS = Resource(names.GATEWAY_API, "v1", "ListenerSet", "listenersets")
TCP_ROUTES = Resource(names.GATEWAY_API, "v1", "TCPRoute", "tcproutes")
UDP_ROUTES = Resource(names.GATEWAY_API, "v1", "UDPRoute", "udproutes")
REFERENCE_GRANTS = Resource(names.GATEWAY_API, "v1", "ReferenceGrant", "referencegrants")
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
CRDS = Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False)
