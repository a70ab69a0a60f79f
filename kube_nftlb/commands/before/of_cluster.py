"""Versions, nodes, and other programs that have to do with Services. Pure: no I/O."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kube_nftlb.commands.before.finding import Finding
from kube_nftlb.kube.resources import JsonObject

_OLDEST_KUBERNETES, _OLDEST_KERNEL, _TRIED_KERNEL = (1, 30), (5, 13), (6, 1)
_FORGETTING_KERNELS = range(1, 60)
"""Releases of Linux 6.1 that may lack commit c92db3030492 of 2023. Distributions with their own count as 6.1.0."""
_OS = "kubernetes.io/os"
_ALL_SERVICES = "it serves all Services, and both would translate each connection"
_ONE_PROXY = "let it leave Services to kube-nftlb first, or keep it and do not install kube-nftlb"


def of_versions(version: Mapping[str, Any], nodes: Iterable[JsonObject]) -> Iterator[Finding]:
    """Yield what is too old, and which nodes get no agent."""
    number = f"{version.get('major')}.{version.get('minor')}"
    if (found := re.match(r"(\d+)\.(\d+)", number)) and (int(found[1]), int(found[2])) < _OLDEST_KUBERNETES:
        message = f"Kubernetes is {version.get('gitVersion')}; kube-nftlb needs 1.30 or later"
        yield Finding("blocks", "KubernetesVersion", message, "upgrade Kubernetes first")
    linux: list[JsonObject] = []
    others: list[JsonObject] = []
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        (linux if labels.get(_OS, "linux") == "linux" else others).append(node)
    if others:
        message = "these nodes do not run Linux, and get no agent"
        yield Finding("note", "OtherSystems", message, "leave kube-proxy there", _names(others))
    yield from _of_kernels(linux)
    if without := [node for node in linux if not (node.get("spec") or {}).get("podCIDRs")]:
        message = "these Nodes have no spec.podCIDRs, by which the agent knows the node's own pods"
        yield Finding(
            "differs", "PodCIDRs", message, "set podCIDRs of the chart to the ranges of all pods", _names(without)
        )


def _of_kernels(nodes: Iterable[JsonObject]) -> Iterator[Finding]:
    kernels = [(node, kernel) for node in nodes if (kernel := _kernel(node)) is not None]
    if old := _names(node for node, kernel in kernels if kernel < _OLDEST_KERNEL):
        yield Finding("blocks", "Kernel", "the kernel is older than 5.13", "upgrade the kernel of these nodes", old)
    leaking = [node for node, kernel in kernels if kernel[:2] == (6, 1) and kernel[2] in _FORGETTING_KERNELS]
    if leaking:
        message = (
            "Linux 6.1 before 6.1.60 may not free the clients that session affinity of the engine nftables forgets"
        )
        fix = "upgrade the kernel of these nodes; else, once the map of clients is full, no more are remembered there"
        yield Finding("differs", "KernelForgets", message, fix, _names(leaking))
    if untried := _names(node for node, kernel in kernels if _OLDEST_KERNEL <= kernel < _TRIED_KERNEL):
        message = "the kernel is older than 6.1, with which nobody has tried kube-nftlb"
        yield Finding("differs", "KernelUntried", message, "move one of them first, and look at its NftlbNode", untried)


def _names(nodes: Iterable[JsonObject]) -> tuple[str, ...]:
    return tuple(str(node["metadata"]["name"]) for node in nodes)


def _kernel(node: JsonObject) -> tuple[int, int, int] | None:
    release = str(((node.get("status") or {}).get("nodeInfo") or {}).get("kernelVersion", ""))
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", release)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def of_network_policies(policies: Iterable[JsonObject] | None) -> Iterator[Finding]:
    """Yield the NetworkPolicies that admit clients by what the mode snat hides; None: they cannot be listed."""
    if policies is None:
        message = (
            "the NetworkPolicies cannot be listed; those that select clients do not recognize them with the chart's"
            " profile nftlb (mode snat)"
        )
        action = "ask somebody who may list them to run this, or install with profile=kube-proxy"
        yield Finding("unknown", "NetworkPoliciesUnknown", message, action)
    choosing = tuple(
        f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"
        for raw in policies or ()
        if any(rule.get("from") for rule in (raw.get("spec") or {}).get("ingress") or ())
    )
    if choosing:
        message = (
            "these NetworkPolicies choose clients, but with the chart's profile nftlb (mode snat) they see a node,"
            " not the client of a Service: clients that a policy admits may fail, and others may pass"
        )
        yield Finding("unknown", "NetworkPolicies", message, "install with profile=kube-proxy", choosing)


def of_programs(daemon_sets: Iterable[JsonObject], cilium: JsonObject | None) -> Iterator[Finding]:
    """Yield other service proxies, by the DaemonSets and the ConfigMap of Cilium."""
    replacement = str(((cilium or {}).get("data") or {}).get("kube-proxy-replacement", "")).lower()
    if replacement in ("true", "strict"):
        message = f"Cilium replaces kube-proxy (kube-proxy-replacement={replacement}): {_ALL_SERVICES}"
        yield Finding("blocks", "OtherProxy", message, _ONE_PROXY, ("kube-system/cilium-config",))
    for raw in daemon_sets:
        name = f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"
        pod = ((raw.get("spec") or {}).get("template") or {}).get("spec") or {}
        for container in pod.get("containers") or ():
            if proxy := _proxy(container):
                yield Finding("blocks", "OtherProxy", f"{proxy}: {_ALL_SERVICES}", _ONE_PROXY, (name,))


def _proxy(container: Mapping[str, Any]) -> str | None:
    """Return what makes a container a service proxy; None if it is none that we know."""
    environment = {each.get("name"): str(each.get("value", "")).lower() for each in container.get("env") or ()}
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if environment.get("FELIX_BPFENABLED") == "true":
        return "Calico replaces kube-proxy (FELIX_BPFENABLED=true)"
    image = str(container.get("image", ""))
    if "kube-router" in image and not {"--run-service-proxy=false"} & set(words):
        return "kube-router runs its service proxy"
    return None
