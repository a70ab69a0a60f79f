"""The configuration of nodes that run containers, and the pause image."""

import io
import json
import tarfile
import tomllib
from pathlib import Path

import pytest

from kube_nftlb import errors
from lab import addresses
from lab.containers import archive, config, probe

NODE = addresses.NodePlan(2)


def test_pods_get_dual_stack_addresses_of_their_node_on_the_bridge() -> None:
    bridge, portmap = json.loads(config.pod_network(NODE))["plugins"]
    assert (portmap["type"], portmap["capabilities"]) == ("portmap", {"portMappings": True})
    assert (bridge["bridge"], bridge["hairpinMode"], bridge["ipMasq"]) == ("cni0", True, False)
    assert [ranges[0] for ranges in bridge["ipam"]["ranges"]] == [
        {"subnet": "10.244.2.0/24", "rangeStart": "10.244.2.2", "gateway": "10.244.2.1"},
        {"subnet": "fd00:244:2::/64", "rangeStart": "fd00:244:2::2", "gateway": "fd00:244:2::1"},
    ]


def test_pods_of_another_network_are_connected_by_its_plugin() -> None:
    routed, _ = json.loads(config.pod_network(NODE, "ptp"))["plugins"]
    assert (routed["type"], routed["ipMasq"], "mtu" in routed, "bridge" in routed) == ("ptp", False, False, False)
    by_flannel, _ = json.loads(config.pod_network(NODE, "flannel-vxlan", 1450))["plugins"]
    assert (by_flannel["type"], by_flannel["bridge"], by_flannel["mtu"]) == ("bridge", "cni0", 1450)
    assert routed["ipam"] == by_flannel["ipam"]


def test_folders_are_quoted_for_containerd() -> None:
    written = tomllib.loads(config.containerd(root='/a "b"', cni_folder="/c d", snapshotter="native"))
    plugin = written["plugins"]["io.containerd.grpc.v1.cri"]
    assert (written["root"], plugin["cni"]["conf_dir"]) == ('/a "b"', "/c d")
    assert (plugin["containerd"]["snapshotter"], plugin["sandbox_image"]) == ("native", config.PAUSE_IMAGE)


def test_each_kubelet_has_its_own_control_group() -> None:
    written = json.loads(config.kubelet(cgroup_root="/lab.node-1"))
    assert (written["cgroupRoot"], written["cgroupDriver"]) == ("/lab.node-1", "cgroupfs")


def test_a_single_program_image_runs_the_program() -> None:
    with tarfile.open(fileobj=io.BytesIO(archive.of_program(b"program", "pause:1"))) as image:
        [manifest] = json.loads(read(image, "manifest.json"))
        written = json.loads(read(image, manifest["Config"]))
        assert manifest["RepoTags"] == ["pause:1"]
        with tarfile.open(fileobj=io.BytesIO(read(image, manifest["Layers"][0]))) as layer:
            [program] = written["config"]["Entrypoint"]
            assert read(layer, program.removeprefix("/")) == b"program"
            assert layer.getmember(program.removeprefix("/")).mode & 0o111


def test_the_probe_reports_what_the_machine_lacks(tmp_path: Path) -> None:
    """Without root that is root; with it, control groups, or what runc says."""
    runc = tmp_path / "runc"
    runc.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = spec ]; then echo \'{"process": {}, "linux": {}}\' > config.json; exit; fi\n'
        'while [ $# -gt 0 ]; do if [ "$1" = --log ]; then echo "no such namespace" > "$2"; fi; shift; done\n'
        "exit 1\n"
    )
    runc.chmod(0o755)
    lacks = "that takes root|does not let us make control groups|no such namespace"
    with pytest.raises(errors.LabError, match=f"this machine cannot run containers.*({lacks})"):
        probe.check(runc, runc, tmp_path)


def read(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    assert member is not None
    return member.read()
