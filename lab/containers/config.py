"""Configuration of a node's containerd, CNI plugins and kubelet. Computation only."""

import json
from typing import Any

from lab import addresses, cni, components
from lab.addresses import NodePlan

SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "kube-nftlb.io/lab/pause:1"

_HOST_OF_FIRST_POD = addresses.FIRST_POD_HOST


def containerd(*, root: str, cni_folder: str, snapshotter: str) -> str:
    """Return the containerd configuration; ``root`` is the folder for images and containers."""
    lines = (
        "version = 2",
        f"root = {_quoted(root)}",
        'state = "/run/containerd"',
        "[grpc]",
        f"address = {_quoted(SOCKET)}",
        '[plugins."io.containerd.grpc.v1.cri"]',
        f"sandbox_image = {_quoted(PAUSE_IMAGE)}",
        # Without CAP_SYS_RESOURCE a process cannot lower its OOM score below its parent's.
        "restrict_oom_score_adj = true",
        '[plugins."io.containerd.grpc.v1.cri".containerd]',
        f"snapshotter = {_quoted(snapshotter)}",
        '[plugins."io.containerd.grpc.v1.cri".cni]',
        f"bin_dir = {_quoted(components.CNI_PLUGINS)}",
        f"conf_dir = {_quoted(cni_folder)}",
    )
    return "\n".join(lines) + "\n"


def pod_network(node: NodePlan, name: str | None = None, mtu: int | None = None) -> str:
    """Return the CNI configuration of a node, by the name of the network: None for the lab's bridge.

    ``mtu`` is that of the pods in bytes; None leaves it to the plugin.
    """
    gateways = [str(interface.ip) for interface in node.gateway]
    firsts = [str(interface.ip) for interface in node.pod_interfaces(_HOST_OF_FIRST_POD)]
    ranges = [
        [{"subnet": str(cidr), "rangeStart": first, "gateway": gateway}]
        for cidr, first, gateway in zip(node.pod_cidrs, firsts, gateways, strict=True)
    ]
    pods = cni.plugin(name or "bridge", {"type": "host-local", "ranges": ranges}, mtu)
    # For hostPort. It does nothing for pods without.
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "lab", "plugins": [pods, portmap]}, indent=2)


def kubelet(*, cgroup_root: str) -> str:
    """Return the KubeletConfiguration. Everybody in the lab's network has full access, as to the API server."""
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        # Per node, so that a kubelet does not take the containers of another for orphans.
        "cgroupRoot": cgroup_root,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        # The lab does not manage the machine's disk.
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "shutdownGracePeriod": "0s",
        "nodeStatusUpdateFrequency": "5s",
        "maxPods": addresses.LAST_POD_HOST - addresses.FIRST_POD_HOST + 1,
    }
    return json.dumps(configuration, indent=2)


def _quoted(text: str) -> str:
    """Return a TOML string; JSON strings are valid ones."""
    return json.dumps(text)
