"""Find the namespace of operator and agents, and what is theirs there: anybody may name or label objects like them."""

from collections.abc import Iterable, Sequence

from kube_nftlb import errors
from kube_nftlb.commands.cluster.queries import AGENT, Target, get_or_none
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import CLUSTER_ROLE_BINDINGS, PODS, JsonObject


async def namespace_of_programs(kube: Kube, target: Target) -> str | None:
    """Return the namespace of operator and agents: that of the option, or of the agents' service account.

    The ClusterRoleBinding says it, which only administrators write. None if the user may not know, or if nothing binds
    this account.
    """
    if target.system_namespace:
        return target.system_namespace
    binding = await get_or_none(kube, CLUSTER_ROLE_BINDINGS, AGENT) or {}
    accounts = [each for each in binding.get("subjects") or () if each.get("kind") == "ServiceAccount"]
    return next((each.get("namespace") for each in accounts if each.get("name") == AGENT), None)


async def program_pods(kube: Kube, target: Target, labels: str, fields: str | None = None) -> Sequence[JsonObject]:
    """Return pods of operator or agents. Raises UsageError if nobody tells which, KubeError if it is not allowed."""
    namespace = await namespace_of_programs(kube, target)
    pods = (await kube.list(PODS, namespace, label_selector=labels, field_selector=fields)).items
    check_one_namespace(pods)
    return pods


def check_one_namespace(*listed: Iterable[JsonObject] | None) -> None:
    """Raise UsageError if objects of operator and agents are in several namespaces: those of one may be forged."""
    namespaces = sorted({raw["metadata"]["namespace"] for objects in listed for raw in objects or ()})
    if len(namespaces) > 1:
        raise errors.UsageError(
            f"objects that look like the operator or the agents are in the namespaces {', '.join(namespaces)}: name"
            " the one of kube-nftlb with --system-namespace"
        )
