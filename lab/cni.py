"""A pod's network by a CNI plugin of Debian, instead of the lab's own bridge, and flannel between the nodes.

The environment variable KUBE_NFTLB_LAB_NETWORK of the process that starts the lab names the network. Flannel's own CNI
plugin only calls ``bridge``, with flannel's MTU; so does the lab.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kube_nftlb import errors
from lab import network
from lab.addresses import NodePlan
from lab.flannel import config as flannel
from lab.state import LabFiles

VARIABLE = "KUBE_NFTLB_LAB_NETWORK"
NETWORKS = ("bridge", "ptp", *flannel.BACKENDS)
"""A bridge on each node as the lab's own, a routed link for each pod, and flannel with each of two backends."""
_TIMEOUT_S = 30


def chosen(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the network, or None for the lab's own bridge. Raises LabError for one that the lab does not have."""
    name = environment.get(VARIABLE)
    if name and name not in NETWORKS:
        raise errors.LabError(f"{VARIABLE} must be one of {', '.join(NETWORKS)}, not {name!r}")
    return name or None


def backend(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the backend of flannel, or None if the lab connects the nodes. Raises LabError as ``chosen``."""
    return flannel.BACKENDS.get(chosen(environment) or "")


def mtu(files: LabFiles, node: NodePlan) -> int | None:
    """Return the MTU that flannel's daemon on a node leaves pods, in bytes; None without flannel.

    Raises ValueError if the daemon has written none.
    """
    return flannel.mtu(files.flannel_subnets(node.name).read_text()) if backend() else None


def config(name: str, node: NodePlan, host: int, mtu: int | None = None) -> dict[str, Any]:
    """Return the CNI configuration that gives a pod its addresses on the node, by the name of the network.

    ``mtu`` is that of the pod in bytes; None leaves it to the plugin.
    """
    own = [str(interface) for interface in node.pod_interfaces(host)]
    gateways = [str(interface.ip) for interface in node.gateway]
    addresses = [{"address": each, "gateway": gateway} for each, gateway in zip(own, gateways, strict=True)]
    made = plugin(name, {"type": "static", "addresses": addresses}, mtu)
    return {"cniVersion": "0.4.0", "name": "lab", **made}


def plugin(name: str, ipam: Mapping[str, Any], mtu: int | None) -> dict[str, Any]:
    """Return the entry of a CNI configuration that connects pods; ``ipam`` is that of what gives them addresses.

    ``mtu`` is that of the pods in bytes; None leaves it to the plugin.
    """
    kind = "bridge" if name in flannel.BACKENDS else name
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    made: dict[str, Any] = {"type": kind, "ipMasq": False, "ipam": {**ipam, "routes": routes}}
    if kind == "bridge":
        made |= {"bridge": network.POD_BRIDGE, "isGateway": True, "hairpinMode": True}
    if mtu is not None:
        made["mtu"] = mtu
    return made


def add(folder: Path, configuration: Mapping[str, Any], netns: Path) -> None:
    """Have a plugin in ``folder`` connect a namespace to that of the caller, a node. Raises LabError."""
    environment = {
        **os.environ,
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": netns.name,
        "CNI_NETNS": str(netns),
        "CNI_IFNAME": "eth0",
        "CNI_PATH": str(folder),
    }
    done = subprocess.run(
        [folder / configuration["type"]],
        env=environment,
        input=json.dumps(configuration),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise errors.LabError(f"the plugin {configuration['type']} failed: {done.stdout}{done.stderr}")
