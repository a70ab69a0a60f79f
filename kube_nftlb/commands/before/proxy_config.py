"""kube-proxy's configuration: what of it matters before a move. Pure: no I/O.

The fields are those of KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), as kubeadm writes it to a ConfigMap.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

_FILES = ("config.conf", "kubeconfig.conf", "config.yaml", "config")
_KIND = "KubeProxyConfiguration"


class ProxyConfig(NamedTuple):
    """The configuration of kube-proxy; a field that it lacks has the default, or is empty."""

    mode: str = "iptables"
    node_port_addresses: tuple[str, ...] = ()
    localhost_node_ports: bool = True
    masquerade_all: bool = False
    detect_local_mode: str = "ClusterCIDR"
    scheduler: str = ""
    strict_arp: bool = False
    conntrack: Mapping[str, Any] = {}
    metrics_address: str = ""
    health_address: str = ""


def parse(config_map: Mapping[str, Any]) -> ProxyConfig | None:
    """Return the configuration in a ConfigMap; None if there is none that can be read."""
    data = config_map.get("data") or {}
    for file in (*_FILES, *sorted(data.keys() - set(_FILES))):
        try:
            found = yaml.safe_load(data.get(file) or "")
        except (yaml.YAMLError, ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("kind") == _KIND:
            return _parsed(found)
    return None


def _parsed(raw: Mapping[str, Any]) -> ProxyConfig:
    iptables, ipvs = _section(raw, "iptables"), _section(raw, "ipvs")
    addresses = raw.get("nodePortAddresses") or ()
    return ProxyConfig(
        mode=str(raw.get("mode") or "iptables"),
        node_port_addresses=tuple(map(str, addresses)) if isinstance(addresses, list) else (),
        localhost_node_ports=iptables.get("localhostNodePorts") is not False,
        masquerade_all=any(
            _section(raw, mode).get("masqueradeAll") is True for mode in ("iptables", "nftables", "ipvs")
        ),
        detect_local_mode=str(raw.get("detectLocalMode") or "ClusterCIDR"),
        scheduler=str(ipvs.get("scheduler") or ""),
        strict_arp=ipvs.get("strictARP") is True,
        conntrack=_section(raw, "conntrack"),
        metrics_address=str(raw.get("metricsBindAddress") or ""),
        health_address=str(raw.get("healthzBindAddress") or ""),
    )


def _section(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = raw.get(name)
    return found if isinstance(found, dict) else {}
