"""Files and mounts of nodes that run containers."""

import subprocess
from pathlib import Path

from kube_nftlb import errors
from lab import cni
from lab.addresses import NodePlan
from lab.containers import cgroups, config
from lab.namespaces import on_first_cpu
from lab.state import LabFiles

_PRIVATE = ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet")
"""Written by containerd, kubelet, CNI plugins and hostPath volumes; each node has empty ones of its own."""


def prepare(files: LabFiles, node: NodePlan, snapshotter: str) -> None:
    """Write the configuration of a node's programs; create its namespaces and control groups. Raises LabError."""
    folder = files.node(node.name)
    cni_folder = _cni_folder(files, node)
    cni_folder.mkdir(mode=0o700, parents=True)
    containerd = config.containerd(root=str(folder / "containerd"), cni_folder=str(cni_folder), snapshotter=snapshotter)
    files.containerd_config(node.name).write_text(containerd)
    files.kubelet_config(node.name).write_text(
        config.kubelet(cgroup_root=f"/{cgroups.name(files.root.name, node.name)}")
    )
    cgroups.create(files.root.name, node.name)
    for path in _PRIVATE:
        Path(path).mkdir(parents=True, exist_ok=True)
    steps = [f"hostname {node.name}", *(f"mount -t tmpfs -o mode=0700 tmpfs {path}" for path in _PRIVATE)]
    namespaces = {"mount": files.mounts(node.name), "uts": files.host_name(node.name)}
    for namespace in namespaces.values():
        namespace.touch()
    options = [f"--{kind}={namespace}" for kind, namespace in namespaces.items()]
    command = ["unshare", *options, "--propagation", "unchanged", "--", "sh", "-ec", "; ".join(steps)]
    with on_first_cpu():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise errors.LabError(f"{node.name} cannot have its own namespaces: {done.stderr.strip()}")


def connect(files: LabFiles, node: NodePlan) -> None:
    """Tell a node's containerd how pods are connected, once flannel, if there is one, has written its subnets."""
    network = config.pod_network(node, cni.chosen(), cni.mtu(files, node))
    (_cni_folder(files, node) / "lab.conflist").write_text(network)


def _cni_folder(files: LabFiles, node: NodePlan) -> Path:
    return files.node(node.name) / "cni"
