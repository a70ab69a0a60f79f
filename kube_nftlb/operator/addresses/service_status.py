"""What the status of a Service says of its addresses. Pure."""

from typing import Any

from kube_nftlb import names
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.operator.addresses.allocate import Outcome
from kube_nftlb.operator.addresses.requests import condition_of

_MESSAGE_MAX = 1024


def is_written(service: Service, outcome: Outcome) -> bool:
    """Return true if a Service has the addresses and the condition already."""
    condition, ingress = condition_of(service), service.status.load_balancer.ingress
    if condition is None or any(each.hostname or each.ip_mode not in (None, "VIP") for each in ingress):
        return False
    written = (condition.status, condition.reason, condition.message)
    return [each.ip for each in ingress] == [str(ip) for ip in outcome.addresses] and written == _summary(outcome)


def status(service: Service, outcome: Outcome, now: str) -> dict[str, Any]:
    """Return the part of the status to apply; ``now`` (RFC 3339) is the time of a condition that changes."""
    before = condition_of(service)
    true, reason, message = _summary(outcome)
    since = before.last_transition_time if before is not None and before.status == true else ""
    condition = {
        "type": names.ADDRESS_CONDITION,
        "status": true,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or now,
    }
    ingress = [{"ip": str(ip), "ipMode": "VIP"} for ip in outcome.addresses]
    return {"loadBalancer": {"ingress": ingress}, "conditions": [condition]}


def _summary(outcome: Outcome) -> tuple[str, str, str]:
    status = "True" if outcome.reason == "Assigned" else "False"
    return status, outcome.reason, outcome.message[:_MESSAGE_MAX]
