"""Names that more than one module must agree on: labels, annotation keys, field managers, farm and nftlb names.

The farm names are the ones that the project's ancestor used, so that its users find what they know.
"""

import hashlib
from collections.abc import Iterable

GROUP = "kube-nftlb.io"

ANNOTATION_PREFIX = "service.kubernetes.io/kube-nftlb-load-balancer-"
"""What every annotation key on a Service starts with; ``mode``, ``scheduler`` and so on follow."""

ANNOTATION_TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
"""On an EndpointSlice: when the oldest change that its last update follows was made (the EndpointSlice API)."""
ANNOTATION_CHANGED_AT = f"{GROUP}/last-change-trigger-time"
"""On a farm: the same, of the EndpointSlices that its last change follows."""

LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY_OPERATOR = "kube-nftlb-operator"
LABEL_SERVICE = f"{GROUP}/service"
"""On a farm: the name of the Service that it was made from."""
LABEL_SERVICE_PORT = f"{GROUP}/service-port"
"""On a farm: the name of the Service port that it was made from; empty for a nameless port."""
LABEL_FAMILY = f"{GROUP}/family"
"""On a farm made from a Service: ``ipv4`` or ``ipv6``."""
LABEL_TRAFFIC = f"{GROUP}/traffic"
"""On a farm made from a Service: ``external`` for the one with the addresses that are reached from outside the cluster,
where another has the cluster IP; else ``all``."""
LABEL_SLICE_SERVICE = "kubernetes.io/service-name"
"""On an EndpointSlice: its Service (the EndpointSlice API)."""
LABEL_PROXY_NAME = "service.kubernetes.io/service-proxy-name"
"""On a Service: another proxy serves it (the Service API)."""
LABEL_HEADLESS = "service.kubernetes.io/headless"
"""On a Service: it is headless although it may have an address (the Service API)."""

FIELD_MANAGER_FARMS = "kube-nftlb-operator"
FIELD_MANAGER_STATUS = "kube-nftlb-operator-status"
FIELD_MANAGER_AGENT = "kube-nftlb-agent"

NODE_FARM_NAME_MAX = 100
"""nftlb builds nftables object names from a farm's name, and dies on names that nftables refuses (128 characters)."""
NFTLB_OBJECT_NAME_MAX = 63
"""For backends and addresses; nftlb has no use for longer ones."""

HASH_CHARACTERS = 10


def farm_name(service: str, port: str | None, family: str, *, external: bool = False) -> str:
    """The farm of a Service port: ``my-service--http``, ``my-service--default``, ``my-service--http--ipv6``.

    ``external`` is for the second farm of a port, as in ``my-service--http--external``.
    """
    name = f"{service}--{port or 'default'}"
    return name + ("--ipv6" if family == "ipv6" else "") + ("--external" if external else "")


def distinct_farm_name(base: str, service: str, port: str | None, family: str, *, external: bool = False) -> str:
    """A farm name for a Service port whose plain name is taken: the plain one and a hash of what it stands for."""
    return f"{base}-{digest(service, port or '', family, *(['external'] if external else []))}"


def node_farm_name(namespace: str, farm: str) -> str:
    """What a farm is called in nftlb: its own name in the namespace ``default``, else ``<namespace>.<farm>``.

    Neither has a dot of its own, so no two farms meet; one that has got past that rule never takes the name of another
    namespace's farm. Past ``NODE_FARM_NAME_MAX`` a hash stands for the end.
    """
    plain = namespace == "default" and "." not in farm
    return shorten(farm if plain else f"{namespace}.{farm}", NODE_FARM_NAME_MAX)


def policy_chain(node_farm: str, policies: Iterable[str]) -> str:
    """Return the name of the chain that applies these policies to a farm, in the agent table."""
    return f"policy-{shorten(node_farm, NODE_FARM_NAME_MAX)}-{digest(*policies)}"


def shorten(name: str, limit: int) -> str:
    """The name itself, or, where it is longer than the limit, its beginning and a hash of it all."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - HASH_CHARACTERS - 1]}-{digest(name)}"


def digest(*parts: str) -> str:
    """Return ten hexadecimal digits that stand for these texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:HASH_CHARACTERS]
