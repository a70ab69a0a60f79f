"""Names that several modules share: labels, annotations, field managers, and names of farms and objects in nftlb.

Farm names are those of the project's predecessor, so that its users recognize them.
"""

import hashlib
from collections.abc import Iterable

GROUP = "kube-nftlb.io"

GATEWAY_API = "gateway.networking.k8s.io"
"""The API group of Gateway API."""

ANNOTATION_PREFIX = "service.kubernetes.io/kube-nftlb-load-balancer-"
"""The prefix of all annotations of Services and Pods; ``mode``, ``scheduler`` and so on follow."""

ANNOTATION_TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
"""On an EndpointSlice: the time of the oldest change in its last update (EndpointSlice API)."""

LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY_OPERATOR = "kube-nftlb-operator"
OPERATOR_COMPONENT = "kube-nftlb-operator"
"""The source of the operator's Events, and its user agent."""
LABEL_SERVICE = f"{GROUP}/service"
"""On a farm: the name of its Service."""
LABEL_SERVICE_PORT = f"{GROUP}/service-port"
"""On a farm: the name of its Service port; empty for an unnamed port."""
LABEL_FAMILY = f"{GROUP}/family"
"""On a farm of a Service: ``ipv4`` or ``ipv6``."""
LABEL_TRAFFIC = f"{GROUP}/traffic"
"""On a farm of a Service: ``external`` if it only has the addresses reachable from outside the cluster, because another
farm has the cluster IP; else ``all``."""
LABEL_SLICE_SERVICE = "kubernetes.io/service-name"
"""On an EndpointSlice: its Service (EndpointSlice API)."""
LABEL_PROXY_NAME = "service.kubernetes.io/service-proxy-name"
"""On a Service: another proxy serves it (Service API)."""
LABEL_IP_MANAGED_BY = "ipaddress.kubernetes.io/managed-by"
"""Of an IPAddress: who made it. The API server looks after those that it made for Services, and no others."""
LABEL_IP_FAMILY = "ipaddress.kubernetes.io/ip-family"
LABEL_HEADLESS = "service.kubernetes.io/headless"
"""On an EndpointSlice: its Service is headless, and no proxy serves it (Service API).

On a Service with a cluster IP it means nothing since Kubernetes 1.36: its slices do not get it.
"""

READINESS_GATE = f"{GROUP}/programmed"
"""The readiness gate of a Pod that becomes ready only once the nodes have it; the operator sets its condition."""
LABEL_READINESS_GATE = f"{GROUP}/readiness-gate"
READINESS_GATE_ENABLED = "enabled"
"""On a Pod with the gate, so that no other Pods have to be watched; on a namespace whose new Pods get both."""
SERVICE_CONDITION = f"{GROUP}/Programmed"
"""The condition of a Service, where the administrator allows it."""

LOAD_BALANCER_CLASS = f"{GROUP}/nftlb"
"""spec.loadBalancerClass of Services that get their addresses from NftlbAddressPools."""
ADDRESS_CONDITION = f"{GROUP}/AddressAssigned"
"""The condition of a Service that gets its addresses from them."""
ANNOTATION_ADDRESSES = f"{ANNOTATION_PREFIX}addresses"
ANNOTATION_ADDRESS_POOL = f"{ANNOTATION_PREFIX}address-pool"
ANNOTATION_SHARING_KEY = f"{ANNOTATION_PREFIX}address-sharing-key"

FIELD_MANAGER_ADDRESSES = "kube-nftlb-operator-addresses"

ANNOTATION_PORT_RANGE = f"{GROUP}/port-range."
"""On a Gateway or ListenerSet, before a listener's name: the range of ports that this listener has."""
ANNOTATION_GATEWAY_POOL = f"{GROUP}/address-pool"
"""On a Gateway: the only NftlbAddressPool that it gets an address from."""
ANNOTATION_GATEWAY_FAMILIES = f"{GROUP}/ip-families"
"""On a Gateway: ``ipv4``, ``ipv6`` or ``ipv4,ipv6``, the families of the addresses that it gets."""
ANNOTATION_GATEWAY_TRAFFIC_POLICY = f"{GROUP}/external-traffic-policy"
"""On a Gateway: ``Cluster`` or ``Local``, for its farms what the field of this name is for a Service."""
LABEL_GATEWAY = f"{GROUP}/gateway"
LABEL_GATEWAY_NAMESPACE = f"{GROUP}/gateway-namespace"
LABEL_LISTENER_SET = f"{GROUP}/listener-set"
LABEL_LISTENER_SET_NAMESPACE = f"{GROUP}/listener-set-namespace"
LABEL_LISTENER = f"{GROUP}/listener"
LABEL_ROUTE = f"{GROUP}/route"
"""On a farm of a TCPRoute or UDPRoute: the names of its Gateway, of the ListenerSet, if its listener is of one, of the
listener and of the route; ends in a hash where it is longer than a label."""

ANNOTATION_NODE_DRAINS = f"{GROUP}/drains"
"""On a Node, ``true``: other nodes take the load balancer addresses that it announces."""

FIELD_MANAGER_FARMS = "kube-nftlb-operator"
FIELD_MANAGER_STATUS = "kube-nftlb-operator-status"
FIELD_MANAGER_AGENT = "kube-nftlb-agent"

NODE_FARM_NAME_MAX = 96
"""Names of nftables objects, of at most 127 characters, are derived from a farm's; nftlb exits if one is refused."""
NFTLB_OBJECT_NAME_MAX = 63
"""The limit for names of backends and addresses, to keep them short."""
LABEL_VALUE_MAX = 63

HASH_CHARACTERS = 10


def farm_name(service: str, port: str | None, family: str, *, external: bool = False) -> str:
    """Return the name of a Service port's farm, such as ``my-service--http``, ``...--default``, ``...--http--ipv6``.

    ``external`` is for the second farm of a port, such as ``my-service--http--external``.
    """
    name = f"{service}--{port or 'default'}"
    return name + ("--ipv6" if family == "ipv6" else "") + ("--external" if external else "")


def distinct_farm_name(base: str, service: str, port: str | None, family: str, *, external: bool = False) -> str:
    """Return a farm name for a Service port whose plain name is taken: that name with a hash."""
    return f"{base}-{digest(service, port or '', family, *(['external'] if external else []))}"


def node_farm_name(namespace: str, farm: str) -> str:
    """Return the name of a farm on a node: its own in the namespace ``default``, else ``<namespace>.<farm>``.

    Neither part has a dot, so names are unique; a farm that got past that rule cannot take the name of one in another
    namespace. Names longer than ``NODE_FARM_NAME_MAX`` end in a hash.
    """
    plain = namespace == "default" and "." not in farm
    return shorten(farm if plain else f"{namespace}.{farm}", NODE_FARM_NAME_MAX)


def policy_chain(node_farm: str, sets: Iterable[Iterable[str]], *, ipv6: bool) -> str:
    """Return the name of the chain that applies these sets of policies to a farm, in the agent table."""
    # While a farm changes its family it needs those of both.
    parts = [*map(",".join, sets), *(["ipv6"] if ipv6 else [])]
    return f"policy-{shorten(node_farm, NODE_FARM_NAME_MAX)}-{digest(*parts)}"


def shorten(name: str, limit: int) -> str:
    """Return the name; if it is longer than the limit, its beginning and a hash."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - HASH_CHARACTERS - 1]}-{digest(name)}"


def digest(*parts: str, characters: int = HASH_CHARACTERS) -> str:
    """Return so many hexadecimal digits that stand for these texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:characters]
