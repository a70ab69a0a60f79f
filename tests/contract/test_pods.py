"""Pods as the mode dsr sees them: network namespaces on a bridge, whose tenants may do in them what they like."""

import subprocess
from collections.abc import Iterator

import pytest
from pyroute2 import IPRoute

from kube_nftlb.agent.dsr import survey
from tests.contract.segment import Network

BRIDGE = "cni0"


class Pod(Network):
    """A pod on the bridge: 10.244.1.NUMBER on eth0."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.ip = f"10.244.1.{number}"
        pair = ["type", "veth", "peer", "name", "eth0", "netns", str(self.pid)]
        subprocess.run(["ip", "link", "add", f"veth{number}", "up", "master", BRIDGE, *pair], check=True)
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "address", "add", f"{self.ip}/24", "dev", "eth0")

    @property
    def inode(self) -> int:
        return self.path.stat().st_ino


@pytest.fixture
def pods(private_network: None) -> Iterator[list[Pod]]:  # noqa: ARG001 - by name
    """Two pods on a node's bridge."""
    subprocess.run(["ip", "link", "add", BRIDGE, "up", "type", "bridge"], check=True)
    pods = [Pod(number) for number in (2, 3)]
    yield pods
    for pod in pods:
        pod.close()
    subprocess.run(["ip", "link", "delete", BRIDGE], check=True)


def test_pods_are_found_whatever_name_one_gives_an_interface(pods: list[Pod]) -> None:
    entered = ["nsenter", "-t", str(pods[0].pid), "-n"]
    subprocess.run([*entered, "ip", "link", "add", "name", b"a\xffb", "up", "type", "bridge"], check=True)
    assert {ip: pod.namespace for ip, pod in survey.survey().pods.items()} == {pod.ip: pod.inode for pod in pods}


def test_a_pod_that_cannot_be_read_leaves_the_others(pods: list[Pod], monkeypatch: pytest.MonkeyPatch) -> None:
    read = survey.read_links

    def read_links(netlink: IPRoute) -> list[survey.Link]:
        links = read(netlink)
        assert not any(pods[0].ip in link.ips for link in links), "an error that nobody expects"
        return links

    monkeypatch.setattr(survey, "read_links", read_links)
    assert survey.survey().pods.keys() == {pods[1].ip}
