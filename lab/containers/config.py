"""What containerd, its network plugins and kubelet are told on one node. Computation only."""

import json
from typing import Any

from lab import addresses, network
from lab.addresses import NodePlan

SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "kube-nftlb.io/lab/pause:1"
CNI_PLUGINS = "/usr/lib/cni"

_HOST_OF_FIRST_POD = addresses.FIRST_POD_HOST


def containerd(*, root: str, cni_folder: str, snapshotter: str) -> str:
    """containerd's configuration; ``root`` is the folder for images and containers."""
    lines = (
        "version = 2",
        f"root = {_quoted(root)}",
        'state = "/run/containerd"',
        "[grpc]",
        f"address = {_quoted(SOCKET)}",
        '[plugins."io.containerd.grpc.v1.cri"]',
        f"sandbox_image = {_quoted(PAUSE_IMAGE)}",
        # Without CAP_SYS_RESOURCE a process cannot be made less likely to be killed than its parent.
        "restrict_oom_score_adj = true",
        '[plugins."io.containerd.grpc.v1.cri".containerd]',
        f"snapshotter = {_quoted(snapshotter)}",
        '[plugins."io.containerd.grpc.v1.cri".cni]',
        f"bin_dir = {_quoted(CNI_PLUGINS)}",
        f"conf_dir = {_quoted(cni_folder)}",
    )
    return "\n".join(lines) + "\n"


def cni(node: NodePlan) -> str:
    """The network of a node's pods: the bridge that the lab has made, and the node's own ranges."""
    gateways = [str(interface.ip) for interface in node.gateway]
    firsts = [str(interface.ip) for interface in node.pod_interfaces(_HOST_OF_FIRST_POD)]
    ranges = [
        [{"subnet": str(cidr), "rangeStart": first, "gateway": gateway}]
        for cidr, first, gateway in zip(node.pod_cidrs, firsts, gateways, strict=True)
    ]
    bridge = {
        "type": "bridge",
        "bridge": network.POD_BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": ranges,
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        },
    }
    return json.dumps({"cniVersion": "0.4.0", "name": "lab", "plugins": [bridge]}, indent=2)


def kubelet(*, cgroup_root: str) -> str:
    """The KubeletConfiguration. Whoever is in the lab's network may do everything, as with the API server's token."""
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        # Of its own, so that several kubelets do not take each other's containers for forgotten ones.
        "cgroupRoot": cgroup_root,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        # The machine's disk is not the lab's affair.
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
    """A string of TOML; JSON's are."""
    return json.dumps(text)
