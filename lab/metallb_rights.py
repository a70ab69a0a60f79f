"""Give MetalLB's programs in a lab their rights, and the Pods that they look for."""

import asyncio
from collections.abc import Iterable
from typing import Final

import yaml

from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import NAMESPACES, PODS, JsonObject
from lab import readiness, rights
from lab.addresses import NodePlan
from lab.metallb import plan

_FIELD_MANAGER = "kube-nftlb-lab"
_KINDS: Final = ("Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")


async def grant(client: Kube, manifest: str, nodes: Iterable[NodePlan]) -> None:
    """Create what the text of MetalLB's manifest has of rights, and the Pods; wait until these have their addresses."""
    namespace, *others = objects(manifest)
    await client.apply(NAMESPACES, namespace, field_manager=_FIELD_MANAGER)
    await asyncio.gather(
        *(client.apply(rights.KINDS[body["kind"]], body, field_manager=_FIELD_MANAGER) for body in others)
    )
    await readiness.until_account(client, plan.NAMESPACE)
    pods = plan.pods(nodes)
    await asyncio.gather(*(client.create(PODS, body, plan.NAMESPACE) for body in pods))
    await readiness.until_pods_run(client, plan.NAMESPACE, len(pods))


async def token(client: Kube, program: str) -> str:
    """Return a token of a program's service account."""
    return await rights.token(client, plan.NAMESPACE, plan.ACCOUNTS[program])


def objects(manifest: str) -> list[JsonObject]:
    """Return the namespace, accounts and rights of MetalLB's manifest, the namespace first.

    Its workloads are left out, as the lab runs the programs itself, and its webhooks, as it runs none.
    """
    found = [body for body in yaml.load_all(manifest, Loader=yaml.CSafeLoader) if body and body["kind"] in _KINDS]
    return sorted(found, key=lambda body: _KINDS.index(body["kind"]))
