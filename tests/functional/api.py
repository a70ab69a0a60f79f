"""A client of the API server: kubectl would take a tenth of a second of CPU time for each request."""

import contextlib
import json
import ssl
from pathlib import Path
from typing import Any

import httpx

Object = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"

_NFTLB = "apis/kube-nftlb.io/v1alpha1"
_GATEWAY = "apis/gateway.networking.k8s.io/v1"
_METALLB = "apis/metallb.io/v1beta1"
_RIGHTS = "apis/rbac.authorization.k8s.io/v1"
_PATHS = {
    "clusterrole": (_RIGHTS, "clusterroles"),
    "clusterrolebinding": (_RIGHTS, "clusterrolebindings"),
    "crd": ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "daemonset": ("apis/apps/v1", "daemonsets"),
    "deployment": ("apis/apps/v1", "deployments"),
    "endpoints": ("api/v1", "endpoints"),
    "endpointslice": ("apis/discovery.k8s.io/v1", "endpointslices"),
    "event": ("api/v1", "events"),
    "farm": (_NFTLB, "nftlbfarms"),
    "farmpolicy": (_NFTLB, "nftlbpolicies"),
    "nftlbaddresspool": (_NFTLB, "nftlbaddresspools"),
    "nftlbbgppeer": (_NFTLB, "nftlbbgppeers"),
    "nftlbfarm": (_NFTLB, "nftlbfarms"),
    "gateway": (_GATEWAY, "gateways"),
    "gatewayclass": (_GATEWAY, "gatewayclasses"),
    "ipaddresspool": (_METALLB, "ipaddresspools"),
    "l2advertisement": (_METALLB, "l2advertisements"),
    "ipaddress": ("apis/networking.k8s.io/v1", "ipaddresses"),
    "lease": ("apis/coordination.k8s.io/v1", "leases"),
    "namespace": ("api/v1", "namespaces"),
    "nftlbnode": (_NFTLB, "nftlbnodes"),
    "nftlbpolicy": (_NFTLB, "nftlbpolicies"),
    "node": ("api/v1", "nodes"),
    "listenerset": (_GATEWAY, "listenersets"),
    "pdb": ("apis/policy/v1", "poddisruptionbudgets"),
    "pod": ("api/v1", "pods"),
    "referencegrant": (_GATEWAY, "referencegrants"),
    "rolebinding": (_RIGHTS, "rolebindings"),
    "service": ("api/v1", "services"),
    "serviceaccount": ("api/v1", "serviceaccounts"),
    "servicecidr": ("apis/networking.k8s.io/v1", "servicecidrs"),
    "statefulset": ("apis/apps/v1", "statefulsets"),
    "tcproute": (_GATEWAY, "tcproutes"),
    "udproute": (_GATEWAY, "udproutes"),
    "validatingwebhookconfiguration": ("apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
}
_CLUSTER_SCOPED = {
    "clusterrole",
    "clusterrolebinding",
    "crd",
    "gatewayclass",
    "ipaddress",
    "namespace",
    "nftlbaddresspool",
    "nftlbbgppeer",
    "nftlbnode",
    "node",
    "servicecidr",
    "validatingwebhookconfiguration",
}


def path(kind: str, name: str | None, namespace: str) -> str:
    """The path of an object, or of all of a kind if no name is given; of all namespaces if that is empty."""
    prefix, plural = _PATHS[kind]
    scope = "" if kind in _CLUSTER_SCOPED or not namespace else f"/namespaces/{namespace}"
    return f"/{prefix}{scope}/{plural}" + (f"/{name}" if name else "")


class Api:
    """The API server of a lab's kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._http = httpx.Client(
            base_url=cluster["server"],
            headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
            verify=ssl.create_default_context(cafile=cluster["certificate-authority"]),
            timeout=90,  # deleting a hundred Services takes a busy API server half a minute
        )

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, path: str, body: Object | None = None, content: str = "application/json") -> Any:
        """Raises AssertionError with the API server's message."""
        answer = self._http.request(
            method, path, content=json.dumps(body) if body is not None else None, headers={"Content-Type": content}
        )
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json()

    def get(self, kind: str, name: str | None, namespace: str, **options: str) -> Any:
        """Return an object, or the list of all; None if there is none, or no API server."""
        for _ in range(2):
            try:
                answer = self._http.get(path(kind, name, namespace), params=options)
            except httpx.TransportError:
                # It may have been restarted since the last request.
                continue
            return answer.json() if answer.is_success else None
        return None

    def apply(self, wanted: Object) -> Any:
        """As ``kubectl apply --server-side --force-conflicts``. Raises AssertionError with the API server's message."""
        metadata = wanted["metadata"]
        where = path(wanted["kind"].lower(), metadata["name"], metadata.get("namespace", "default"))
        return self.request("PATCH", f"{where}?fieldManager=kubectl&force=true", wanted, _APPLY)

    def patch(self, kind: str, name: str, namespace: str, changes: Object) -> Any:
        """Apply a JSON merge patch. Raises AssertionError with the API server's message."""
        return self.request("PATCH", path(kind, name, namespace), changes, MERGE_PATCH)

    def delete(self, kind: str, name: str, namespace: str) -> None:
        """Raises AssertionError, except if it is already gone."""
        answer = self._http.delete(path(kind, name, namespace))
        assert answer.is_success or answer.status_code == 404, answer.text

    def delete_all(self, kind: str, namespace: str) -> None:
        """Raises AssertionError."""
        of_kind = path(kind, None, namespace)
        # Of hundreds of objects the API server deletes as many as it can in a minute, then says so or hangs up.
        while True:
            with contextlib.suppress(httpx.RemoteProtocolError):
                answer = self._http.delete(of_kind)
                if answer.status_code != httpx.codes.GATEWAY_TIMEOUT:
                    break
        assert answer.is_success, f"DELETE {of_kind}: {answer.text}"
