"""A pod's network by a CNI plugin of Debian, instead of the lab's own bridge.

The environment variable KUBE_NFTLB_LAB_NETWORK of the process that starts the lab names the plugin.
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

VARIABLE = "KUBE_NFTLB_LAB_NETWORK"
PLUGINS = ("bridge", "ptp")
"""A bridge on each node as the lab's own, and a routed link for each pod."""
_TIMEOUT_S = 30


def chosen(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the plugin, or None for the lab's own bridge. Raises LabError for one that the lab does not have."""
    name = environment.get(VARIABLE)
    if name and name not in PLUGINS:
        raise errors.LabError(f"{VARIABLE} must be one of {', '.join(PLUGINS)}, not {name!r}")
    return name or None


def config(plugin: str, node: NodePlan, host: int) -> dict[str, Any]:
    """Return the CNI configuration that gives a pod its addresses on the node."""
    own = [str(interface) for interface in node.pod_interfaces(host)]
    gateways = [str(interface.ip) for interface in node.gateway]
    addresses = [{"address": each, "gateway": gateway} for each, gateway in zip(own, gateways, strict=True)]
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    made: dict[str, Any] = {"cniVersion": "0.4.0", "name": "lab", "type": plugin, "ipMasq": False}
    made["ipam"] = {"type": "static", "addresses": addresses, "routes": routes}
    if plugin == "bridge":
        made |= {"bridge": network.POD_BRIDGE, "isGateway": True, "hairpinMode": True}
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
