"""The responder on a real segment: what kernels of other hosts learn from it, and what a switch does."""

import platform
import re
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from subprocess import CalledProcessError
from typing import NamedTuple

import pytest

from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.heard import Asked
from kube_nftlb.announce.wire.links import Link
from kube_nftlb.announce.wire.messages import Heard, LinkChanged, Peer, Place, Probed, Ready, Silent, State, Yielded
from kube_nftlb.announce.wire.sending import packed
from kube_nftlb.announce.wire.time_slices import SHORTEST_NS
from tests.contract.segment import BRIDGE, Agent, Host, Network, Segment, segment, until, usable

pytestmark = pytest.mark.skipif(not usable(), reason="needs root: network namespaces")

FOUR, SIX = "192.0.2.10", "2001:db8::a:b:c"
BOTH = (Place(FOUR, Host.link), Place(SIX, Host.link))
FAMILIES = pytest.mark.parametrize("ip", [FOUR, SIX], ids=["ipv4", "ipv6"])


class Lab(NamedTuple):
    segment: Segment
    node: Host
    agent: Agent
    """Of the node."""
    client: Host


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Segment, Host, Host]]:
    with segment() as made:
        yield made, made.host(1), made.host(200)


@pytest.fixture
def lab(hosts: tuple[Segment, Host, Host], tmp_path: Path) -> Iterator[Lab]:
    """A fresh responder on a node, a client that knows nothing, and an agent that says nothing yet."""
    made, node, client = hosts
    client.forget()
    agent = Agent(node, tmp_path)
    agent.wait(Ready)
    yield Lab(made, node, agent, client)
    agent.close()


def mac(host: Host) -> bytes:
    return bytes.fromhex(host.mac.replace(":", ""))


def heard(link: Link, seconds: float, ip: str) -> list[bytes]:
    """Return the frames that tell of an address within a time."""
    frames, deadline = [], time.monotonic() + seconds
    while time.monotonic() < deadline:
        for frame in link.read():
            said = arp.read(frame) or ndp.read(frame)
            if said and said.statement and said.statement.ip == packed(ip):
                frames.append(frame)
        time.sleep(0.002)
    return frames


@FAMILIES
def test_a_client_finds_the_address_at_the_node(lab: Lab, ip: str) -> None:
    assert lab.client.neighbour(ip) == "", "nobody has it yet"
    lab.agent.want(State(0, BOTH))
    lab.agent.wait(LinkChanged)
    assert lab.client.neighbour(ip) == lab.node.mac
    assert lab.client.neighbour("192.0.2.11" if ip == FOUR else "2001:db8::a:b:d") == "", "not what is next to it"


def test_the_kernel_gives_the_responder_short_slices(lab: Lab) -> None:
    """So that an answer does not wait for what another program has left of its own."""
    if not (slices := _slices("self")) or _kernel() < (6, 12):
        pytest.skip("needs Linux 6.12 or later, which shows se.slice in /proc/<pid>/sched (CONFIG_SCHED_DEBUG)")
    lab.agent.want(State(0, BOTH))
    lab.agent.wait(LinkChanged)
    assert _slices(str(lab.agent.process.pid)) == SHORTEST_NS < slices


def _kernel() -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", platform.release())[:2]))


def _slices(process: str) -> int | None:
    """Return the length of a process's slices in nanoseconds, if the kernel tells it."""
    path = Path("/proc", process, "sched")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    match = re.search(r"^se\.slice\s*:\s*(\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else None


def test_the_node_has_the_address_on_no_interface(lab: Lab) -> None:
    lab.agent.want(State(0, BOTH))
    lab.agent.wait(LinkChanged)
    assert FOUR not in lab.node.run("ip", "address")
    assert SIX not in lab.node.run("ip", "address")


@FAMILIES
def test_a_client_that_checks_whether_the_node_is_still_there_gets_an_answer(lab: Lab, ip: str) -> None:
    lab.agent.want(State(0, BOTH))
    lab.agent.wait(LinkChanged)
    # The kernel asks by unicast while an entry is in this state (neighbour unreachability detection).
    lab.client.run("ip", "neigh", "replace", ip, "lladdr", lab.node.mac, "nud", "probe", "dev", Host.link)
    until(lambda: "REACHABLE" in lab.client.run("ip", "neigh", "show", ip), "it is still there")


@FAMILIES
def test_a_client_that_knew_another_node_learns_of_the_new_one(lab: Lab, ip: str) -> None:
    lab.client.run("ip", "neigh", "replace", ip, "lladdr", "02:00:00:00:00:ee", "nud", "reachable", "dev", Host.link)
    # The kernel ignores ARP for an entry that is younger than a second (locktime).
    time.sleep(1.1)
    lab.agent.want(State(0, BOTH))
    until(lambda: lab.client.known(ip) == lab.node.mac, "it is at the new one")


@FAMILIES
def test_a_handover_takes_three_frames_and_rest_none(lab: Lab, ip: str) -> None:
    link = lab.client.open()
    lab.agent.want(State(0, BOTH))
    assert len(heard(link, 1.5, ip)) == 3
    lab.agent.want(State(0, BOTH))
    assert heard(link, 3.0, ip) == []
    link.close()


def test_many_addresses_are_announced_at_most_200_times_a_second(lab: Lab) -> None:
    link = lab.client.open()
    began, frames = time.monotonic(), 0
    lab.agent.want(State(0, tuple(Place(f"192.0.2.{number}", Host.link) for number in range(20, 180))))
    while frames < 160 or time.monotonic() < began + 1:
        frames += len(list(link.read()))
        took = time.monotonic() - began
        assert took < 10, "each once"
        assert frames <= 25 + 180 * took, "at once 20, then 180 a second, and five of others"
        time.sleep(0.002)
    link.close()


def test_a_host_that_wants_the_ipv6_address_finds_that_it_is_used(lab: Lab) -> None:
    lab.agent.want(State(0, BOTH))
    lab.agent.wait(LinkChanged)
    lab.client.run("sysctl", "-qw", f"net.ipv6.conf.{Host.link}.accept_dad=1")
    lab.client.run("ip", "address", "add", f"{SIX}/64", "dev", Host.link)
    try:
        until(lambda: "dadfailed" in lab.client.run("ip", "address"), "it finds so")
    finally:
        lab.client.run("ip", "address", "del", f"{SIX}/64", "dev", Host.link)
        lab.client.run("sysctl", "-qw", f"net.ipv6.conf.{Host.link}.accept_dad=0")


@FAMILIES
def test_a_probe_finds_out_who_has_an_address(lab: Lab, ip: str) -> None:
    lab.agent.want(State(0, probe=BOTH))
    assert {lab.agent.wait(Probed) for _ in BOTH} == {Probed(place.ip, Host.link) for place in BOTH}
    lab.agent.want(State(0))
    prefix = "24" if ip == FOUR else "64"
    lab.client.run("ip", "address", "add", f"{ip}/{prefix}", "dev", Host.link)
    lab.agent.want(State(0, probe=(Place(ip, Host.link),)))
    try:
        assert lab.agent.wait(Probed) == Probed(ip, Host.link, lab.client.mac)
    finally:
        lab.client.run("ip", "address", "del", f"{ip}/{prefix}", "dev", Host.link)


@FAMILIES
def test_the_node_yields_to_another_that_announces_itself(lab: Lab, ip: str) -> None:
    link = lab.client.open()
    lab.agent.want(State(0, BOTH))
    lab.agent.wait(LinkChanged)
    build = arp.announcement(mac(lab.client), packed(ip), reply=False) if ip == FOUR else None
    link.send(build or ndp.announcement(mac(lab.client), packed(ip)))
    assert lab.agent.wait(Yielded) == Yielded(ip, Host.link, lab.client.mac)
    link.close()
    lab.client.forget()
    assert lab.client.neighbour(ip) == ""
    assert lab.client.neighbour(SIX if ip == FOUR else FOUR) == lab.node.mac, "the other one is its own"


@FAMILIES
def test_a_hung_agent_falls_silent_by_itself_and_a_restarted_one_does_not(lab: Lab, ip: str) -> None:
    lab.agent.want(State(0, BOTH), 60)
    lab.agent.wait(LinkChanged)
    began = time.monotonic()
    lab.agent.connect()
    assert lab.agent.wait(Ready).holds, "an agent that restarts finds its addresses answered for"
    assert lab.client.neighbour(ip) == lab.node.mac
    assert not lab.agent.wait(Ready, 10).holds
    assert 4.5 <= time.monotonic() - began <= 10, "5 s, and what a busy machine adds"
    lab.client.forget()
    assert lab.client.neighbour(ip) == ""


def test_a_switch_that_snoops_forwards_solicitations_for_as_long_as_the_address_is_here(lab: Lab) -> None:
    group = "ff02::1:ff0b:c"
    lab.agent.want(State(0, BOTH))
    lab.agent.wait(LinkChanged)
    until(lambda: group in lab.segment.groups(lab.node), "it forwards them")
    lab.agent.want(State(0))
    until(lambda: group not in lab.segment.groups(lab.node), "it forwards them no more")


@FAMILIES
def test_a_holder_that_stands_still_is_silent_and_is_heard_when_it_goes_on(lab: Lab, ip: str, tmp_path: Path) -> None:
    standby = lab.segment.host(2 if ip == FOUR else 3)
    watching = Agent(standby, tmp_path)
    lab.agent.want(State(0, BOTH), 60)
    lab.agent.wait(LinkChanged)
    watching.want(State(0, watch=(Peer(ip, Host.link, lab.node.mac),)))
    watching.wait(LinkChanged)
    time.sleep(1.0)
    began = time.monotonic()
    lab.agent.process.send_signal(signal.SIGSTOP)
    watching.want(State(0, watch=(Peer(ip, Host.link, lab.node.mac),)))
    silent = watching.wait(Silent)
    assert (silent.ip, silent.link, silent.mac) == (ip, Host.link, lab.node.mac)
    assert 1.0 <= time.monotonic() - began <= 3.3, "two seconds at most, and what a busy machine adds"
    lab.agent.process.send_signal(signal.SIGCONT)
    assert watching.wait(Heard) == Heard(ip, Host.link, lab.node.mac)
    watching.close()


def test_a_link_that_was_away_is_told_of_and_its_addresses_are_not_taken_for_granted(lab: Lab) -> None:
    lab.agent.want(State(0, BOTH))
    lab.agent.wait(LinkChanged)
    lab.segment.switch.run("ip", "link", "set", lab.node.port, "down")
    assert lab.agent.wait(LinkChanged).error
    lab.segment.switch.run("ip", "link", "set", lab.node.port, "up")
    assert lab.agent.wait(LinkChanged).mac == lab.node.mac
    assert lab.client.neighbour(FOUR) == "", "others may have it by now"
    lab.agent.want(State(0))
    lab.agent.want(State(0, BOTH))
    lab.client.forget()
    assert lab.client.neighbour(FOUR) == lab.node.mac


def frames(link: Link, ip: str, seconds: float = 0.5) -> int:
    """Return how many frames tell of an address, once one has come, or within a time."""
    deadline, found = time.monotonic() + seconds, 0
    while not found and time.monotonic() < deadline:
        found = len(heard(link, 0.05, ip))
    return found


@FAMILIES
def test_what_comes_to_an_interface_above_a_link_is_not_of_the_link(lab: Lab, ip: str) -> None:
    """As with a VLAN: the kernel shows what comes to the upper one to the sockets of the lower one, too."""
    above, upper = "02:00:00:00:00:99", "above0"
    try:
        lab.node.run("ip", "link", "add", "link", Host.link, "name", upper, "address", above, "type", "macvlan")
    except CalledProcessError:
        pytest.skip("needs macvlan")
    lab.node.run("ip", "link", "set", upper, "up")
    lower, link, client = lab.node.open(), lab.node.inside(lambda: Link.open(upper)), lab.client.open()
    try:
        for target, expected in ((mac(lab.node), (1, 0)), (bytes.fromhex(above.replace(":", "")), (0, 1))):
            asked = Asked(packed(ip), target, packed(lab.client.address(ip)))
            client.send((arp if ip == FOUR else ndp).answer(mac(lab.client), packed(ip), asked))
            assert (frames(lower, ip), frames(link, ip)) == expected
    finally:
        for each in (lower, link, client):
            each.close()
        lab.node.run("ip", "link", "del", upper)


@FAMILIES
def test_what_comes_to_a_bridge_is_of_the_bridge(lab: Lab, ip: str) -> None:
    with closing(lab.segment.switch.inside(lambda: Link.open(BRIDGE))) as bridge, closing(lab.client.open()) as client:
        announcement = arp.announcement(mac(lab.client), packed(ip), reply=True) if ip == FOUR else None
        client.send(announcement or ndp.announcement(mac(lab.client), packed(ip)))
        assert frames(bridge, ip) == 1


def test_a_link_whose_name_another_interface_has_cannot_be_used() -> None:
    network = Network()
    network.run("ip", "link", "add", "eth0", "up", "type", "veth", "peer", "name", "eth1")
    network.run("ip", "link", "set", "eth1", "up")
    with closing(network), closing(network.inside(lambda: Link.open("eth0"))) as link:
        network.inside(link.addresses)
        for before, after in (("eth0", "eth2"), ("eth1", "eth0")):
            network.run("ip", "link", "set", before, "down")
            network.run("ip", "link", "set", before, "name", after, "up")
        with pytest.raises(OSError, match="eth0 is another interface now"):
            network.inside(link.addresses)


def test_nobody_is_silent_and_nothing_is_held_on_a_link_that_can_join_no_group(lab: Lab) -> None:
    # The kernel has no IPv6 on a link with a smaller MTU.
    lab.node.run("ip", "link", "set", Host.link, "mtu", "1000")
    watch = (Peer("192.0.2.200", Host.link, lab.client.mac),)
    try:
        lab.agent.want(State(0, (Place(SIX, Host.link),), watch=watch))
        assert lab.agent.wait(Yielded).ip == SIX
        # A second one comes before the link is looked at again.
        lab.agent.want(State(0, (Place("2001:db8::d", Host.link),), watch=watch))
        assert lab.agent.wait(Yielded).ip == "2001:db8::d"
        with pytest.raises(AssertionError, match="no Silent"):
            lab.agent.wait(Silent, 3.0)
    finally:
        lab.node.run("ip", "link", "set", Host.link, "mtu", "1500")
        lab.node.run("ip", "address", "add", "2001:db8::1/64", "dev", Host.link, "nodad")


def test_it_needs_one_capability_and_25_megabytes(lab: Lab) -> None:
    lab.agent.want(State(0, tuple(Place(f"2001:db8::{number:x}", Host.link) for number in range(0x1000, 0x1000 + 500))))
    lab.agent.wait(LinkChanged)
    time.sleep(0.5)
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{lab.agent.process.pid}/status").read_text().splitlines()
    )
    assert int(status["CapEff"], 16) == 1 << 13, "NET_RAW (capability.h)"
    assert int(status["VmRSS"].split()[0]) <= 25 * 1024
    assert lab.client.neighbour("2001:db8::11f3") == lab.node.mac, "the last of 500"


def test_told_to_end_it_answers_until_it_holds_nothing(lab: Lab) -> None:
    lab.agent.want(State(0.0, BOTH))
    assert lab.client.neighbour(FOUR) == lab.node.mac
    lab.agent.process.send_signal(signal.SIGTERM)
    time.sleep(1.5)
    assert lab.agent.process.poll() is None
    lab.client.forget()
    assert lab.client.neighbour(FOUR) == lab.node.mac
    lab.agent.want(State(0.0))
    assert lab.agent.process.wait(3) == 0
