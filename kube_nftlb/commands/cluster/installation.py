"""Find the namespace of operator and agents, and what is theirs there: anybody may name or label objects like them."""

from collections.abc import Iterable, Sequence
from typing import Final

from kube_nftlb import errors
from kube_nftlb.commands.cluster.queries import AGENT_PODS, Target, get_or_none
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import CLUSTER_ROLE_BINDINGS, PODS, JsonObject

_AGENT: Final = "kube-nftlb-agent"
"""The name of the agents' service account, and of its ClusterRoleBinding, which only administrators write."""


async def namespace_of_programs(kube: Kube, target: Target) -> str | None:
    """Return the namespace of operator and agents: that of the option, or of the agents' service account.

    None if the user may not know, or if nothing binds this account.
    """
    if target.system_namespace:
        return target.system_namespace
    binding = await get_or_none(kube, CLUSTER_ROLE_BINDINGS, _AGENT) or {}
    accounts = [each for each in binding.get("subjects") or () if each.get("kind") == "ServiceAccount"]
    return next((each.get("namespace") for each in accounts if each.get("name") == _AGENT), None)


async def agent_pods(kube: Kube, target: Target, fields: str | None = None) -> Sequence[JsonObject]:
    """Return the agents' pods. Raises UsageError if nobody tells which, KubeError if the user may not know."""
    namespace = await namespace_of_programs(kube, target)
    pods = (await kube.list(PODS, namespace, label_selector=AGENT_PODS, field_selector=fields)).items
    check_one_namespace(pods)
    return pods


def check_one_namespace(*listed: Iterable[JsonObject] | None) -> None:
    """Raise UsageError if objects of operator and agents are in several namespaces: those of one may be forged."""
    namespaces = sorted({raw["metadata"]["namespace"] for objects in listed for raw in objects or ()})
    if len(namespaces) > 1:
        raise errors.UsageError(
            f"what looks like operator or agents is in the namespaces {', '.join(namespaces)}: say with"
            " --system-namespace which is that of kube-nftlb"
        )
