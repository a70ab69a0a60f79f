"""NftlbFarms."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.farm import Farm
from kube_nftlb.endpointslices.backends import resolved_spec
from tests.builders.metadata import CREATED, raw_metadata
from tests.builders.slices import endpoint, endpoint_slice


def raw_farm(
    name: str = "web--http",
    *,
    namespace: str = "default",
    uid: str | None = None,
    version: int = 10,
    generation: int = 1,
    created: str = CREATED,
    owner: str | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """``owner`` is the name of the Service that controls it; the fields of ``spec`` replace the defaults."""
    metadata = raw_metadata(
        name,
        namespace=namespace,
        uid=uid or f"uid-{namespace}-{name}",
        version=version,
        generation=generation,
        created=created,
        owner=owner,
    )
    given = {
        "addresses": [{"ip": "10.96.0.10", "ports": "80"}],
        "backends": [raw_backend("pod-a", "10.244.1.2")],
        **spec,
    }
    return {"metadata": metadata, "spec": given, **({"status": status} if status is not None else {})}


def raw_service_farm(
    name: str = "web--http",
    *,
    service: str = "web",
    port: str = "http",
    family: str = "ipv4",
    owner_uid: str | None = None,
    uid: str | None = None,
    version: int = 10,
    generation: int = 1,
    created: str = CREATED,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """The farm that the operator made of a port of a Service, whose endpoints it refers to."""
    labels = {
        names.LABEL_MANAGED_BY: names.MANAGED_BY_OPERATOR,
        names.LABEL_SERVICE: service,
        names.LABEL_SERVICE_PORT: port,
        names.LABEL_FAMILY: family,
    }
    metadata = raw_metadata(
        name,
        uid=uid,
        version=version,
        generation=generation,
        created=created,
        labels=labels,
        owner=service,
        owner_uid=owner_uid,
    )
    given = {
        "family": family,
        "protocol": "TCP",
        "addresses": [{"ip": "10.96.0.10", "ports": "80"}],
        "backendsFrom": [{"service": service, "port": port}] if port else {"service": service},
        **spec,
    }
    return {"metadata": metadata, "spec": given, **({"status": status} if status is not None else {})}


def raw_backend(name: str, ip: str, port: int | None = 8080, **fields: Any) -> dict[str, Any]:
    """An entry of ``spec.backends``; with ``port=None`` it keeps the port that the client used."""
    return {"name": name, "ip": ip, **({"port": port} if port is not None else {}), **fields}


def raw_route_farm(
    name: str = "web--gate--tcp", *, route: str = "web", kind: str = "TCPRoute", **fields: Any
) -> dict[str, Any]:
    """The farm that the operator made of a route of Gateway API; its backends are endpoints of the Service ``web``."""
    raw = raw_farm(name, **{"backends": [], "backendsFrom": [{"service": "web", "port": "http"}], **fields})
    owner = {"apiVersion": f"{names.GATEWAY_API}/v1", "kind": kind, "name": route, "uid": f"uid-{route}"}
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY_OPERATOR}
    raw["metadata"] |= {"ownerReferences": [{**owner, "controller": True}], "labels": labels}
    return raw


def farm(name: str = "web--http", **fields: Any) -> Farm:
    """``raw_farm``, validated. Raises ValidationError."""
    return Farm.model_validate(raw_farm(name, **fields))


class Grouped(NamedTuple):
    """A reference with this weight to a Service, and the endpoints of that, or their addresses."""

    weight: int
    endpoints: Sequence[dict[str, Any] | str]


def grouped_farm(name: str = "web--http", *, groups: Mapping[str, Grouped], **fields: Any) -> Farm:
    """A farm with a reference for each Service in ``groups``, and the backends that these have on port 8080."""
    references = [{"service": service, "port": "http", "weight": each.weight} for service, each in groups.items()]
    written = farm(name, backends=[], backendsFrom=references, **fields)
    address_type = "IPv6" if written.spec.family == "ipv6" else "IPv4"
    slices = [
        endpoint_slice(
            *(endpoint(entry) if isinstance(entry, str) else entry for entry in each.endpoints),
            name=service,
            service=service,
            address_type=address_type,
            ports=[{"name": "http", "port": 8080, "protocol": written.spec.protocol}],
        )
        for service, each in groups.items()
    ]
    return written.model_copy(update={"spec": resolved_spec(written.spec, written.metadata.namespace, slices)})
