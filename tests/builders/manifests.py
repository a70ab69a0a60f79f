"""Manifests that a test applies to a cluster."""

from collections.abc import Mapping
from typing import Any

from kube_nftlb import names
from tests import engine


def deployment(name: str, replicas: int, namespace: str, grace_s: int = 0, **container: Any) -> dict[str, Any]:
    """A Deployment of servers."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": grace_s,
                    "containers": [{"name": "server", "image": "server", **container}],
                },
            },
        },
    }


def service(name: str, namespace: str, annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A Service of the pods of the Deployment of its name; ``annotations`` have kube-nftlb's prefix left out."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {
                names.ANNOTATION_PREFIX + key: value
                for key, value in {**engine.annotation(), **(annotations or {})}.items()
            },
        },
        "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80}], **spec},
    }


def farm(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kube-nftlb.io/v1alpha1",
        "kind": "NftlbFarm",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**engine.chosen(spec), **spec},
    }


def policy(name: str, namespace: str, kind: str, cidrs: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": "kube-nftlb.io/v1alpha1",
        "kind": "NftlbPolicy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": kind, "cidrs": cidrs},
    }


def client_pod(name: str, namespace: str, node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "client", "image": "client"}],
        },
    }


def endpoint_slice(name: str, namespace: str, service: str, *endpoints: tuple[str, bool]) -> dict[str, Any]:
    """An EndpointSlice of IPv4 addresses, and whether each is ready."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": namespace, "labels": {names.LABEL_SLICE_SERVICE: service}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        "endpoints": [{"addresses": [ip], "conditions": {"ready": ready}} for ip, ready in endpoints],
    }
