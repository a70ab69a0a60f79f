"""Findings about kube-proxy's configuration. Pure: no I/O."""

import re
from collections.abc import Iterator
from typing import Any

from kube_nftlb.commands.before.finding import Finding
from kube_nftlb.commands.before.proxy_config import ProxyConfig

_ALL = ("0.0.0.0/0", "::/0", "all")
_CONNTRACK: dict[str, tuple[str, Any]] = {
    "maxPerCore": ("conntrack.maxPerCore", 32768),
    "min": ("conntrack.min", 131072),
    "tcpEstablishedTimeout": ("conntrack.tcpEstablishedSeconds", 86400),
    "tcpCloseWaitTimeout": ("conntrack.tcpCloseWaitSeconds", 3600),
    "tcpBeLiberal": ("conntrack.tcpBeLiberal", False),
}
"""kube-proxy's fields, the values of the chart, and the defaults of both."""
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|[hms])")
_PORTS = {"metricsBindAddress": "10249", "healthzBindAddress": "10256"}


def of_proxy(config: ProxyConfig, *, node_ports: tuple[str, ...], hides_clients: bool) -> Iterator[Finding]:
    """Yield what differs. ``node_ports`` names the Services that have any; with ``hides_clients`` the mode is snat."""
    yield from _of_mode(config)
    if node_ports:
        yield from _of_node_ports(config, node_ports)
    yield from _of_clients(config, hides_clients)
    yield from _of_conntrack(config)
    addresses = {"metricsBindAddress": config.metrics_address, "healthzBindAddress": config.health_address}
    if moved := [field for field, value in addresses.items() if value and not value.endswith(f":{_PORTS[field]}")]:
        message = (
            f"kube-proxy's {' and '.join(moved)} have other ports than those by which the agent knows that it runs"
        )
        action = "use 10249 and 10256 while you move, or set kubeProxy.cleanup=false and remove its rules by hand"
        yield Finding("differs", "ProxyUnrecognized", message, action)


def _of_mode(config: ProxyConfig) -> Iterator[Finding]:
    if config.mode != "ipvs":
        yield Finding(
            "note",
            "ProxyMode",
            f"kube-proxy is in the mode {config.mode}, whose rules the agent removes",
            "nothing to do",
        )
        return
    yield Finding(
        "blocks",
        "IPVS",
        "open connections through IPVS end when kube-proxy's interface kube-ipvs0 is removed, as conntrack does not"
        " translate them; we have not run this",
        "change kube-proxy to the mode nftables or iptables first, or drain each node before it moves",
    )
    if config.scheduler not in ("", "rr"):
        action = "set the annotation scheduler of Services that need it: kube-nftlb explain scheduler"
        yield Finding("differs", "Scheduler", f"kube-proxy's IPVS scheduler is {config.scheduler}, not rr", action)
    if config.strict_arp:
        message = "strictARP is for addresses on kube-ipvs0, which there are none of with kube-nftlb"
        yield Finding("note", "StrictARP", message, "nothing to do; MetalLB needs it with IPVS only")


def _of_node_ports(config: ProxyConfig, node_ports: tuple[str, ...]) -> Iterator[Finding]:
    own = config.node_port_addresses
    others = tuple(each for each in own if each not in ("primary", "localhost"))
    if (not own and config.mode != "nftables") or set(others) & set(_ALL):
        yield Finding(
            "differs",
            "NodePortAddresses",
            "node ports listen on all addresses of the nodes, with kube-nftlb on the InternalIPs alone",
            "set nodePortAddresses of the chart to 0.0.0.0/0 and ::/0 if clients use other addresses",
            node_ports,
        )
    elif others:
        action = f"set nodePortAddresses of the chart to {', '.join(others)}"
        message = "kube-proxy's nodePortAddresses name ranges, which kube-nftlb has to know"
        yield Finding("differs", "NodePortAddresses", message, action, node_ports)
    in_iptables = (
        config.mode == "iptables" and config.localhost_node_ports and (not own or bool(set(others) & set(_ALL)))
    )
    if in_iptables or "localhost" in own or any(each.startswith(("127.", "::1")) for each in others):
        yield Finding(
            "differs",
            "LocalhostNodePorts",
            "node ports answer at 127.0.0.1, or ::1, on the nodes themselves; with kube-nftlb they do not",
            "let programs on the nodes use an address of the node: kube-proxy's metric"
            " kubeproxy_iptables_localhost_nodeports_accepted_packets_total tells if any uses 127.0.0.1",
            node_ports,
        )


def _of_clients(config: ProxyConfig, hides_clients: bool) -> Iterator[Finding]:
    if config.masquerade_all:
        yield Finding(
            "note",
            "MasqueradeAll",
            "masqueradeAll is on: backends see nodes, as with the chart's mode snat",
            "set defaults.mode=snat",
        )
    elif hides_clients:
        yield Finding(
            "differs",
            "ClientAddresses",
            "backends see the clients in the cluster; with the chart's profile nftlb (mode snat) they see a node",
            "install with profile=kube-proxy",
        )
    if config.detect_local_mode in ("BridgeInterface", "InterfaceNamePrefix"):
        message = f"kube-proxy knows pods by {config.detect_local_mode}, kube-nftlb by the Nodes' spec.podCIDRs"
        yield Finding(
            "differs", "DetectLocalMode", message, "set podCIDRs of the chart if the Nodes' do not hold all pods"
        )


def _of_conntrack(config: ProxyConfig) -> Iterator[Finding]:
    values = []
    for field, (value, default) in _CONNTRACK.items():
        message = config.conntrack.get(field)
        wanted = _seconds(message) if field.endswith("Timeout") else message
        if wanted is not None and wanted != default:
            values.append(f"{value}={str(wanted).lower()}")
    if values:
        message = "kube-proxy's conntrack settings are not the defaults"
        yield Finding("differs", "Conntrack", message, f"set {', '.join(values)} of the chart")
    if fields := [field for field in ("udpTimeout", "udpStreamTimeout") if _seconds(config.conntrack.get(field))]:
        message = f"kube-proxy sets {' and '.join(fields)}, which kube-nftlb leaves alone"
        yield Finding(
            "note", "ConntrackUdp", message, "what kube-proxy has set stays until the node restarts; use sysctl"
        )


def _seconds(duration: Any) -> int | None:
    """Return a duration of Go such as ``1h0m0s``, ``1.5h`` or ``500ms`` in whole seconds; None if it is none."""
    parts = _DURATION_PART.findall(duration) if isinstance(duration, str) else []
    return round(sum(float(number) * _UNITS_S[unit] for number, unit in parts)) if parts else None
