"""Cut what is too long in a Service before it is parsed: to validate a megabyte takes a second. No I/O."""

from typing import Any

from kube_nftlb.operator.farms.external_addresses import ADDRESSES_READ_MAX, SOURCE_RANGES_READ_MAX

Json = dict[str, Any]


def cut_spec(spec: Json, ports_max: int) -> Json:
    """Return the spec of a Service with lists of one more than is read at most, which tells that there were more."""
    limits = {
        "ports": ports_max,
        "externalIPs": ADDRESSES_READ_MAX,
        "loadBalancerSourceRanges": SOURCE_RANGES_READ_MAX,
    }
    return spec | {key: _cut(spec[key], most) for key, most in limits.items() if key in spec}


def cut_load_balancer(load_balancer: Json) -> Json:
    """Return status.loadBalancer of a Service, likewise."""
    return {"ingress": _cut(load_balancer.get("ingress"), ADDRESSES_READ_MAX)}


def _cut(value: Any, most: int) -> Any:
    return value[: most + 1] if isinstance(value, list) else value
