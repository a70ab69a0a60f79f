"""Objects for tests, said in one line."""

from typing import Any

from kube_nftlb.api.farm import Farm


def raw_farm(name: str = "web--http", namespace: str = "default", **changes: Any) -> dict[str, Any]:
    """An NftlbFarm as the API server gives it. To metadata go generation, version, created and owner (a Service)."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "generation": changes.pop("generation", 1),
        "resourceVersion": str(changes.pop("version", 10)),
        "creationTimestamp": changes.pop("created", "2026-01-01T00:00:00Z"),
    }
    if owner := changes.pop("owner", None):
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Service", "name": owner, "uid": f"uid-{owner}", "controller": True}
        ]
    spec = {
        "addresses": [{"ip": "10.96.0.10", "ports": "80"}],
        "backends": [raw_backend("pod-a", "10.244.1.2")],
        **changes,
    }
    return {"metadata": metadata, "spec": spec}


def raw_backend(name: str, ip: str, port: int = 8080, **changes: Any) -> dict[str, Any]:
    """An entry of spec.backends."""
    return {"name": name, "ip": ip, "port": port, **changes}


def farm(name: str = "web--http", namespace: str = "default", **changes: Any) -> Farm:
    """``raw_farm``, validated."""
    return Farm.model_validate(raw_farm(name, namespace, **changes))
