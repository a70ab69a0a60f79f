"""Pods as the mode dsr sees them: network namespaces on a bridge, whose tenants may do in them what they like."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from errno import ENOBUFS
from pathlib import Path
from typing import Any

import pytest
from pyroute2 import IPRoute
from structlog.testing import capture_logs

from kube_nftlb.agent.dsr import survey
from kube_nftlb.agent.dsr.modes import PodVip
from kube_nftlb.agent.dsr.pod_addresses import PodAddresses
from tests.contract.segment import Network

BRIDGE = "cni0"
VIP = "10.96.0.10"


class Pod(Network):
    """A pod on the bridge: 10.244.1.NUMBER on eth0."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.ip = f"10.244.1.{number}"
        self._port = f"veth{number}"
        pair = ["type", "veth", "peer", "name", "eth0", "netns", str(self.pid)]
        subprocess.run(["ip", "link", "add", self._port, "up", "master", BRIDGE, *pair], check=True)
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "address", "add", f"{self.ip}/24", "dev", "eth0")

    @property
    def inode(self) -> int:
        return self.path.stat().st_ino

    def close(self) -> None:
        # The kernel takes its time to delete it with the namespace.
        subprocess.run(["ip", "link", "delete", self._port], check=True)
        super().close()

    def loopback(self) -> set[str]:
        """The addresses on its loopback but its own two."""
        found = json.loads(self.run("ip", "-json", "address", "show", "dev", "lo"))
        return {each["local"] for link in found for each in link["addr_info"]} - {"127.0.0.1", "::1"}

    def wants(self, *vips: str) -> frozenset[PodVip]:
        return frozenset(PodVip(self.ip, vip) for vip in vips)


@pytest.fixture
def pods(private_network: None) -> Iterator[list[Pod]]:  # noqa: ARG001 - by name
    """Two pods on a node's bridge."""
    with ExitStack() as stack:
        subprocess.run(["ip", "link", "add", BRIDGE, "up", "type", "bridge"], check=True)
        stack.callback(subprocess.run, ["ip", "link", "delete", BRIDGE], check=True)
        pods = []
        for number in (2, 3):
            pods.append(Pod(number))
            stack.callback(pods[-1].close)
        yield pods


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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "dsr.json"


def nobody(_: str) -> bool:
    """For agents whose engines serve no farm but those that they provide for."""
    return False


def fail_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Have the next change of a pod fail."""
    set_arp, errors = survey.set_arp, [error]

    def failing(*arguments: Any) -> None:
        if errors:
            raise errors.pop()
        set_arp(*arguments)

    monkeypatch.setattr("kube_nftlb.agent.dsr.pod_addresses.set_arp", failing)


@pytest.mark.parametrize("error", [OSError(ENOBUFS, os.strerror(ENOBUFS)), TypeError("what a tenant did")])
async def test_a_pod_that_did_not_get_an_address_is_no_backend_until_it_has_it(
    pods: list[Pod], file: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    pod, links = pods[0], PodAddresses(file)
    await links.look()
    fail_once(monkeypatch, error)
    await links.provide({"web": pod.wants(VIP)})
    assert (pod.ip in links.links.pods, pod.loopback(), links.incomplete) == (False, set(), True)
    assert not await links.look(), "no interface has changed"
    assert links.incomplete, "though somebody else has looked"
    await links.provide({"web": pod.wants(VIP)})
    assert (pod.ip in links.links.pods, pod.loopback()) == (True, {VIP})


async def test_an_agent_that_ended_as_it_gave_an_address_has_the_next_one_give_it(
    pods: list[Pod], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, ended = pods[0], PodAddresses(file)
    await ended.look()
    fail_once(monkeypatch, PermissionError("no"))
    await ended.provide({"web": pod.wants(VIP)})
    later = PodAddresses(file)
    await later.look()
    await later.provide({"web": pod.wants(VIP)})
    assert pod.loopback() == {VIP}
    await later.provide({"web": frozenset()})
    await later.tidy(nobody)
    assert pod.loopback() == set()


async def test_an_address_that_a_pod_has_of_its_own_stays(pods: list[Pod], file: Path) -> None:
    pod, links = pods[0], PodAddresses(file)
    pod.run("ip", "address", "add", f"{VIP}/32", "dev", "lo")
    await links.look()
    await links.provide({"web": pod.wants(VIP, "10.96.0.11")})
    assert pod.loopback() == {VIP, "10.96.0.11"}
    await links.provide({"web": frozenset()})
    await links.tidy(nobody)
    assert pod.loopback() == {VIP}


async def test_a_new_agent_leaves_the_addresses_of_farms_that_it_does_not_decide_on(
    pods: list[Pod], file: Path
) -> None:
    first, second = pods
    earlier = PodAddresses(file)
    await earlier.look()
    await earlier.provide({"web": first.wants(VIP, "10.96.0.11"), "other": second.wants(VIP)})
    # One address for two farms, on other ports.
    await earlier.provide({"stays": first.wants(VIP)})
    later = PodAddresses(file)
    await later.look()
    await later.provide({"web": frozenset()})
    await later.tidy(lambda farm: farm == "stays")
    assert (first.loopback(), second.loopback()) == ({VIP}, set())
    latest = PodAddresses(file)
    await latest.tidy(lambda farm: farm == "stays")
    assert first.loopback() == {VIP}
    await latest.tidy(nobody)
    assert first.loopback() == set()


async def test_what_an_older_version_gave_to_pods_is_taken_back_once_all_engines_are_known(
    pods: list[Pod], file: Path
) -> None:
    (pod, _), arp = pods, {"arp_announce": 0, "arp_ignore": 0}
    pod.run("ip", "address", "add", f"{VIP}/32", "dev", "lo")
    entry = {"namespace": pod.inode, "interface": "eth0", "arp": arp, "vips": [VIP]}
    await asyncio.to_thread(file.write_text, json.dumps({pod.ip: entry}))
    links = PodAddresses(file)
    await links.tidy(lambda _: True)
    assert pod.loopback() == {VIP}
    await links.tidy(nobody)
    assert pod.loopback() == set()


async def test_an_agent_that_sees_no_pods_leaves_the_record_to_one_that_does(
    pods: list[Pod], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, links = pods[0], PodAddresses(file)
    await links.look()
    await links.provide({"web": pod.wants(VIP)})
    with monkeypatch.context() as patch, capture_logs() as logs:
        # As with dsr.enabled: false, without the processes of the host.
        patch.setattr("kube_nftlb.netfilter.namespaces.other_networks", dict)
        blind = PodAddresses(file)
        for _ in range(3):
            await blind.tidy(nobody)
    assert [each["event"] for each in logs] == ["cannot take an address from a pod"]
    assert pod.loopback() == {VIP}
    await PodAddresses(file).tidy(nobody)
    assert pod.loopback() == set()


@pytest.mark.usefixtures("pods")
async def test_a_pod_that_has_gone_is_off_the_record_where_others_are_seen(file: Path) -> None:
    entry = {"namespace": 1, "interface": "eth0", "arp": {}, "vips": {VIP: ["web"]}}
    await asyncio.to_thread(file.write_text, json.dumps({"10.244.1.9": entry}))
    links = PodAddresses(file)
    await links.tidy(nobody)
    assert json.loads(await asyncio.to_thread(file.read_text)) == {}
