"""What flannel's daemon gets on a node, and what it answers. Computation only."""

import json
import re

from lab import addresses

BACKENDS = {"flannel-vxlan": "vxlan", "flannel-host-gw": "host-gw"}
"""How flannel takes packets from node to node, by the name of a lab's network."""
_MTU = re.compile(r"^FLANNEL_MTU=(\d+)$", re.MULTILINE)


def network(backend: str) -> str:
    """Return the configuration of the network, which all nodes share."""
    four, six = addresses.POD_CIDRS.split(",")
    made = {"Network": four, "EnableIPv6": True, "IPv6Network": six, "Backend": {"Type": backend}}
    return json.dumps(made, indent=2)


def flags(*, kubeconfig: str, network_file: str, subnet_file: str) -> dict[str, str]:
    """Return the flags of the daemon: those of flannel's own manifest, with the lab's files."""
    return {
        "kube-subnet-mgr": "true",
        "ip-masq": "true",
        "iface": "eth0",
        "kubeconfig-file": kubeconfig,
        "net-config-path": network_file,
        "subnet-file": subnet_file,
    }


def mtu(subnets: str) -> int:
    """Return the MTU of pods in bytes, by the file that the daemon writes. Raises ValueError if it names none."""
    if (match := _MTU.search(subnets)) is None:
        raise ValueError(f"no FLANNEL_MTU in {subnets!r}")
    return int(match[1])
