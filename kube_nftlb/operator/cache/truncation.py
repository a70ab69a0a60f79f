"""Truncate what is too long in a Service before it is parsed: to validate a megabyte takes a second. No I/O."""

from typing import Any

from kube_nftlb.operator.farms.external_addresses import ADDRESSES_READ_MAX, SOURCE_RANGES_READ_MAX

Json = dict[str, Any]


def truncated_spec(spec: Json, ports_max: int) -> Json:
    """Truncate a Service's lists to one item past their limits: the extra item marks the truncation."""
    limits = {
        "ports": ports_max,
        "externalIPs": ADDRESSES_READ_MAX,
        "loadBalancerSourceRanges": SOURCE_RANGES_READ_MAX,
    }
    return spec | {key: _truncated(spec[key], most) for key, most in limits.items() if key in spec}


def truncated_load_balancer(load_balancer: Json) -> Json:
    """Truncate status.loadBalancer of a Service, likewise."""
    return {"ingress": _truncated(load_balancer.get("ingress"), ADDRESSES_READ_MAX)}


def _truncated(value: Any, most: int) -> Any:
    return value[: most + 1] if isinstance(value, list) else value
