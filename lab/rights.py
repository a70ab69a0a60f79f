"""RBAC of the operator and the agents in a lab: the chart's roles, and tokens of service accounts.

Nothing of kube-nftlb runs as cluster admin, so that tests fail if the chart lacks a permission.
"""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

import yaml

from kube_nftlb.kube import resources
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import NAMESPACES, JsonObject, Resource
from lab.addresses import NodePlan
from lab.readiness import until_created

NAMESPACE = "kube-nftlb-system"
OPERATOR_ACCOUNT = "kube-nftlb-operator"
AGENT_ACCOUNT = "kube-nftlb-agent"

_FIELD_MANAGER = "kube-nftlb-lab"
_LIFETIME_S = 10 * 365 * 24 * 3600
_RBAC = "rbac.authorization.k8s.io"
_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts")
_CLUSTER_ROLES = Resource(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)
_CLUSTER_ROLE_BINDINGS = Resource(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
_ROLES = Resource(_RBAC, "v1", "Role", "roles")
_ROLE_BINDINGS = Resource(_RBAC, "v1", "RoleBinding", "rolebindings")
KINDS = {each.kind: each for each in (_ACCOUNTS, _CLUSTER_ROLES, _CLUSTER_ROLE_BINDINGS, _ROLES, _ROLE_BINDINGS)}
"""The kinds of objects that give rights, by name."""
_FILES = {OPERATOR_ACCOUNT: "operator", AGENT_ACCOUNT: "agent"}
_MORE = {
    "KUBE_NFTLB_READINESS_GATE": "operator-readiness-gate",
    "KUBE_NFTLB_SERVICE_STATUS": "operator-service-status",
    "KUBE_NFTLB_ADDRESSES": "operator-addresses",
    "KUBE_NFTLB_GATEWAY": "operator-gateway",
}
"""The operator's further rules, by the setting that needs them, as in the chart's template."""
_OF_AGENTS = {"KUBE_NFTLB_ADDRESSES": "agent-addresses", "KUBE_NFTLB_BGP": "agent-bgp-peers"}
"""The same of the agents."""
_IN_NAMESPACE = {"agent-addresses": "agent-namespace-addresses"}
"""Those that come with these in the namespace of kube-nftlb."""


def folder() -> Path:
    """Return the folder with the chart's RBAC rules."""
    return Path(__file__).parents[1] / "charts/kube-nftlb/rbac"


async def grant(
    client: Kube, rules: Path, operator_settings: Mapping[str, str], agent_settings: Mapping[str, str]
) -> None:
    """Create the service accounts and bind the roles in a folder to them, as these settings need."""
    await client.apply(NAMESPACES, {"metadata": {"name": NAMESPACE}}, field_manager=_FIELD_MANAGER)
    bodies = [
        *_objects(rules, OPERATOR_ACCOUNT, _FILES[OPERATOR_ACCOUNT], _needed(_MORE, operator_settings)),
        *_objects(rules, AGENT_ACCOUNT, _FILES[AGENT_ACCOUNT], _needed(_OF_AGENTS, agent_settings)),
    ]
    await asyncio.gather(*(client.apply(resource, body, field_manager=_FIELD_MANAGER) for resource, body in bodies))


async def operator_token(client: Kube) -> str:
    """Return a token of the operator's service account."""
    return await token(client, NAMESPACE, OPERATOR_ACCOUNT)


async def agent_token(client: Kube, plan: NodePlan) -> str:
    """Return a token of the agents' service account, bound to a Node once it exists."""
    node = await until_created(client, resources.NODES, plan.name)
    reference = {"apiVersion": "v1", "kind": "Node", "name": plan.name, "uid": node["metadata"]["uid"]}
    return await token(client, NAMESPACE, AGENT_ACCOUNT, {"boundObjectRef": reference})


async def token(client: Kube, namespace: str, account: str, spec: JsonObject | None = None) -> str:
    """Return a token of a service account; ``spec`` has further fields of the request."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _LIFETIME_S, **(spec or {})},
    }
    answer = await client.request("POST", _ACCOUNTS.path(namespace, account, "token"), body=request)
    made: str = answer["status"]["token"]
    return made


def _needed(files: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    return [file for variable, file in files.items() if settings.get(variable) == "on"]


def _objects(rules: Path, account: str, file: str, more: Collection[str]) -> list[tuple[Resource, JsonObject]]:
    everywhere, here = ({"name": account}, {"name": account, "namespace": NAMESPACE})
    subjects = [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]

    def role(metadata: JsonObject, *names: str) -> JsonObject:
        read = [rule for name in names for rule in yaml.safe_load((rules / f"{name}.yaml").read_text())]
        return {"metadata": metadata, "rules": read}

    def binding(metadata: JsonObject, kind: str) -> JsonObject:
        return {
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": account},
            "subjects": subjects,
        }

    return [
        (_ACCOUNTS, {"metadata": here}),
        (_CLUSTER_ROLES, role(everywhere, file, *more)),
        (_CLUSTER_ROLE_BINDINGS, binding(everywhere, "ClusterRole")),
        (_ROLES, role(here, f"{file}-namespace", *(_IN_NAMESPACE[each] for each in more if each in _IN_NAMESPACE))),
        (_ROLE_BINDINGS, binding(here, "Role")),
    ]
