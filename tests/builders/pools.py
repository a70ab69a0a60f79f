"""NftlbAddressPools, and Services of type LoadBalancer."""

from typing import Any

from kube_nftlb import names
from tests.builders.metadata import CREATED, raw_metadata
from tests.builders.services import raw_service


def raw_pool(name: str = "pool", *ranges: str, created: str = CREATED, **spec: Any) -> dict[str, Any]:
    """A pool; by default of 192.0.2.1 to 192.0.2.3."""
    metadata = raw_metadata(name, namespace=None, created=created, generation=1)
    return {"metadata": metadata, "spec": {"ranges": list(ranges or ("192.0.2.1-192.0.2.3",)), **spec}}


def raw_judged(raw: dict[str, Any], generation: int = 1, status: str = "True") -> dict[str, Any]:
    """The pool with the condition Accepted, about a generation."""
    accepted = {
        "type": "Accepted",
        "status": status,
        "reason": "Valid",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-01-02T00:00:00Z",
    }
    return {**raw, "status": {"conditions": [accepted]}}


def raw_balanced(name: str = "web", *given: str, assigned: bool = False, **fields: Any) -> dict[str, Any]:
    """A Service with our class whose status has the addresses ``given``; if ``assigned``, our condition, too."""
    condition = {"type": names.ADDRESS_CONDITION, "status": "True", "reason": "Assigned", "message": ""}
    status = {
        "loadBalancer": {"ingress": [{"ip": ip, "ipMode": "VIP"} for ip in given]},
        "conditions": [condition] if assigned else [],
    }
    spec = {
        "type": "LoadBalancer",
        "loadBalancerClass": names.LOAD_BALANCER_CLASS,
        "ipFamilies": ["IPv4"],
        "selector": {"app": name},
        **fields,
    }
    return raw_service(name, status=status, **spec)
