"""Give the farms of routes what follows from the Pods of their backends, as farms of Services have it.

These are what annotations say, such as drains and weights, and the IPs of those that wait for the readiness gate.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from kube_nftlb.api.base import Family
from kube_nftlb.api.farm import OVERRIDES_MAX
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.operator.farms.annotations import invalid
from kube_nftlb.operator.farms.builder import distinguish
from kube_nftlb.operator.farms.spec import Spec
from kube_nftlb.operator.model.annotation_options import Fields, Given, fit
from kube_nftlb.operator.model.permissions import Permissions


def with_overrides(
    spec: Spec,
    namespace: str,
    pods: Callable[[ServiceKey], Iterable[str]],
    options: Callable[[str, str], Given],
    permissions: Permissions,
) -> Spec:
    """Return the spec of a farm in a namespace with the overrides of its groups.

    ``pods`` returns the Pods of a Service that have annotations, ``options`` those of a Pod by namespace and name. What
    a farm cannot have is left out: the Service's own farms tell of it.
    """
    groups: list[Spec] = []
    for group in spec["backendsFrom"]:
        service = ServiceKey(group.get("namespace") or namespace, group["service"])
        overrides = [
            {"pod": pod, **fields}
            for pod in islice(pods(service) if service.name else (), OVERRIDES_MAX)
            if (fields := _fields(spec, options(service.namespace, pod), permissions, keep_port=group["keepPort"]))
        ]
        groups.append({**group, "overrides": overrides})
    distinguish([override for group in groups for override in group["overrides"]])
    return {**spec, "backendsFrom": groups}


def with_gated_ips(spec: Spec, namespace: str, gated_ips: Callable[[ServiceKey], Mapping[Family, list[str]]]) -> Spec:
    """Return the spec of a farm in a namespace with the gated IPs of its groups, which are those of its family.

    ``gated_ips`` returns those that farms are to list for a Service.
    """

    def listing(group: Spec) -> Spec:
        service = ServiceKey(group.get("namespace") or namespace, group["service"])
        gated = gated_ips(service)[spec["family"]] if service.name else []
        return {**group, "gatedIPs": gated} if gated else group

    return {**spec, "backendsFrom": [listing(group) for group in spec["backendsFrom"]]}


def _fields(spec: Spec, given: Given, permissions: Permissions, *, keep_port: bool) -> Fields:
    """Return the options of a Pod that the farm can have."""
    farm = {"mode": spec["mode"], "engine": spec["engine"]}
    base: Fields = {} if keep_port else {"port": 1}
    fitted, _ = fit(
        given,
        spec["family"],
        base,
        lambda fields: permissions.objection(fields) or invalid(spec["family"], spec["protocol"], farm, (fields,)),
    )
    return {name: value for name, value in fitted.items() if name != "port"}
