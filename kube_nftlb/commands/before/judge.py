"""All that was found in a cluster, the worst first. Pure: no I/O."""

from collections.abc import Iterator

from kube_nftlb.commands.before.finding import Finding, Survey, names_of
from kube_nftlb.commands.before.of_cluster import of_network_policies, of_programs, of_versions
from kube_nftlb.commands.before.of_proxy import of_proxy
from kube_nftlb.commands.before.of_services import of_services
from kube_nftlb.commands.before.proxy_config import parse
from kube_nftlb.commands.profiles import ENGINES, ChartProfile
from kube_nftlb.kube.resources import JsonObject
from kube_nftlb.settings import DefaultEngine

_ORDER = ("blocks", "unknown", "differs", "note")


def judge(seen: Survey, profile: ChartProfile = "nftlb", engine: DefaultEngine | None = None) -> list[Finding]:
    """Return the findings. ``profile`` and ``engine`` are values of the installation to come; None: the profile's."""
    findings = _findings(seen, profile, engine or ENGINES[profile])
    return sorted(findings, key=lambda each: _ORDER.index(each.severity))


def is_safe(findings: list[Finding]) -> bool:
    """Return True if nodes can be moved without connections that fail, by all that is known."""
    return all(finding.severity not in ("blocks", "unknown") for finding in findings)


def verdict(findings: list[Finding]) -> str:
    """Return what follows from the findings, as the end of a sentence."""
    blocking, unknown = (
        names_of(dict.fromkeys(each.reason for each in findings if each.severity == severity))
        for severity in ("blocks", "unknown")
    )
    if blocking:
        return f"do not move nodes yet: {blocking}"
    return f"it is not known whether nodes can be moved: {unknown}" if unknown else "nodes can be moved"


def _findings(seen: Survey, profile: ChartProfile, engine: DefaultEngine) -> Iterator[Finding]:
    yield from of_versions(seen.version, seen.nodes)
    yield from of_programs(seen.daemon_sets or (), seen.cilium)
    config = parse(seen.kube_proxy) if seen.kube_proxy is not None else None
    if config is None:
        message = "kube-proxy's configuration is not in the ConfigMap kube-system/kube-proxy, or cannot be read"
        action = "compare its mode, nodePortAddresses and conntrack settings by hand; see docs/install.md"
        yield Finding("differs", "ConfigurationUnknown", message, action)
    else:
        node_ports = tuple(_name(raw) for raw in seen.services if _has_node_port(raw))
        yield from of_proxy(config, node_ports=node_ports, hides_clients=profile == "nftlb")
    if seen.daemon_sets is None:
        message = "the DaemonSets cannot be listed, so other service proxies are not seen"
        yield Finding("unknown", "DaemonSetsUnknown", message, "ask somebody who may list them to run this")
    elif not any(raw["metadata"]["name"] == "kube-proxy" for raw in seen.daemon_sets):
        message = (
            "there is no DaemonSet kube-proxy: it may be a part of another program, as in k3s, or of the nodes' system"
        )
        yield Finding("differs", "NoDaemonSet", message, "stop it on the node in its own way when the node is labelled")
    if profile == "nftlb" and (config is None or not config.masquerade_all):
        yield from of_network_policies(seen.network_policies)
    yield from of_services(seen.services, seen.nodes, engine)
    message = "kube-proxy's metrics on port 10249, and alerts on them, end with it"
    yield Finding("note", "Metrics", message, "docs/metrics.md lists those of the agents, on port 9195")


def _has_node_port(raw: JsonObject) -> bool:
    return any(port.get("nodePort") for port in (raw.get("spec") or {}).get("ports") or ())


def _name(raw: JsonObject) -> str:
    return f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
