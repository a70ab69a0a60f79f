"""BIRD gets the peers that select its node, is configured once for each change, and its sessions are told of."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.agent.announcing import bird as bird_module
from kube_nftlb.agent.announcing.bird import Bird
from kube_nftlb.agent.announcing.nodes import NodeSeen
from kube_nftlb.announce.bird.answers import Session
from kube_nftlb.announce.bird.config import protocol_name
from kube_nftlb.announce.bird.files import detection_s
from kube_nftlb.announce.bird.intervals import IntervalsFile
from kube_nftlb.api.node import SESSIONS_SHOWN_MAX
from kube_nftlb.kube.resources import BGP_PEERS
from tests.fakes.kube import FakeKube

NODE = NodeSeen({"rack": "a"}, ipv4="172.31.0.11")


class Control:
    """A BIRD that takes every configuration, or refuses it."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.refuses = ""
        self.found: list[Session] = []
        self.intervals_ms: dict[str, int] = {}
        self.runs = True
        self.ended = False

    def begin(self) -> None:
        pass

    def end(self) -> None:
        self.ended = True

    def write(self, config: str) -> None:
        self.written.append(config)

    async def configure(self) -> str:
        return self.refuses

    async def sessions(self) -> list[Session]:
        if not self.runs:
            raise FileNotFoundError(2, "No such file or directory")
        return self.found

    async def bfd_intervals_ms(self) -> dict[str, int]:
        return self.intervals_ms


def peer(name: str, **spec: Any) -> dict[str, Any]:
    whole = {"address": "172.31.0.1", "asn": 65000, "myAsn": 65001, **spec}
    return {"metadata": {"name": name}, "spec": whole}


@pytest.fixture
def control() -> Control:
    return Control()


@pytest.fixture
def kube() -> FakeKube:
    return FakeKube()


@pytest.fixture
def intervals(tmp_path: Path) -> IntervalsFile:
    return IntervalsFile(tmp_path / "bfd.json")


@pytest.fixture
async def bird(kube: FakeKube, control: Control, intervals: IntervalsFile) -> AsyncIterator[Bird]:
    made: Any = control
    bird = Bird(kube, "node-1", 4242, made, intervals, lambda: None)
    bird.set_pools([])
    bird.set_node(NODE)
    task = asyncio.create_task(bird.run())
    yield bird
    task.cancel()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_peers_that_select_the_node_are_configured(kube: FakeKube, control: Control, bird: Bird) -> None:
    kube.put(BGP_PEERS, peer("here", nodeSelector={"matchLabels": {"rack": "a"}}))
    kube.put(BGP_PEERS, peer("elsewhere", nodeSelector={"matchLabels": {"rack": "b"}}))
    await eventually(lambda: bool(control.written) and protocol_name("here") in control.written[-1])
    assert protocol_name("elsewhere") not in control.written[-1]
    number = len(control.written)
    bird.set_pools([])
    await asyncio.sleep(0.05)
    assert len(control.written) == number, "nothing has changed"
    bird.set_node(NODE._replace(labels={"rack": "b"}))
    await eventually(lambda: protocol_name("elsewhere") in control.written[-1])
    kube.remove(BGP_PEERS, "elsewhere")
    await eventually(lambda: "protocol bgp" not in control.written[-1])


async def test_a_node_identifies_itself_as_before_while_its_object_has_no_address(
    kube: FakeKube, control: Control, bird: Bird
) -> None:
    kube.put(BGP_PEERS, peer("router"))
    await eventually(lambda: bool(control.written) and "router id 172.31.0.11;" in control.written[-1])
    bird.set_node(NODE._replace(ipv4=""))
    kube.put(BGP_PEERS, peer("router", holdTime=30))
    await eventually(lambda: "hold time 30;" in control.written[-1])
    assert "router id 172.31.0.11;" in control.written[-1]


@pytest.mark.usefixtures("bird")
async def test_the_detection_time_is_that_of_a_router_that_asks_for_a_longer_interval(
    kube: FakeKube, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bird_module, "_LOOK_EVERY_S", 0.01)
    kube.put(BGP_PEERS, peer("router", bfd={}))
    await eventually(lambda: bool(control.written) and detection_s(control.written[-1]) == 0.9)
    control.intervals_ms = {"172.31.0.1": 1000}
    await eventually(lambda: detection_s(control.written[-1]) == 3)
    # Of a session that is down it is not told.
    control.intervals_ms = {"172.31.0.9": 100}
    await asyncio.sleep(0.05)
    assert detection_s(control.written[-1]) == 3


async def test_the_agent_of_the_next_pod_knows_the_interval_of_a_router_that_the_one_before_met_last(
    kube: FakeKube, control: Control, bird: Bird, intervals: IntervalsFile
) -> None:
    """The next BIRD starts by it, before it has met the router."""
    kube.put(BGP_PEERS, peer("router", bfd={}))
    await eventually(lambda: bool(control.written) and detection_s(control.written[-1]) == 0.9)
    control.intervals_ms = {"172.31.0.1": 2000}
    await bird.end()
    assert control.ended
    of_pod: Any = Control()
    following = Bird(kube, "node-1", 4242, of_pod, intervals, lambda: None)
    following.set_pools([])
    following.set_node(NODE)
    task = asyncio.create_task(following.run())
    await eventually(lambda: bool(of_pod.written))
    task.cancel()
    assert detection_s(of_pod.written[0]) == 6


def test_without_a_file_that_can_be_read_no_interval_is_known(tmp_path: Path) -> None:
    file = IntervalsFile(tmp_path / "bfd.json")
    for text in ("", "{", "[]", '{"172.31.0.1": null}', '{"172.31.0.1": "x"}'):
        (tmp_path / "bfd.json").write_text(text)
        assert file.read() == {}, text
    (tmp_path / "bfd.json").unlink()
    assert file.read() == {}


@pytest.mark.usefixtures("bird")
async def test_a_peer_that_cannot_be_read_stays_as_it_was(kube: FakeKube, control: Control) -> None:
    kube.put(BGP_PEERS, peer("router", holdTime=30))
    await eventually(lambda: bool(control.written) and "hold time 30;" in control.written[-1])
    kube.put(BGP_PEERS, peer("router", holdTime=40, address="; evil"))
    kube.put(BGP_PEERS, peer("other", holdTime=50))
    await eventually(lambda: "hold time 50;" in control.written[-1])
    assert "hold time 30;" in control.written[-1]
    assert "evil" not in control.written[-1]


async def test_sessions_are_named_by_their_peers_those_that_are_down_first(
    kube: FakeKube, control: Control, bird: Bird
) -> None:
    kube.put(BGP_PEERS, peer("a"))
    kube.put(BGP_PEERS, peer("b"))
    up, down = protocol_name("a"), protocol_name("b")
    control.found = [
        Session(up, "Established", 7, "BFD session down"),
        Session(down, "Idle", 0, "Received: Bad peer AS"),
        Session("another", "Idle", 0),
    ]
    await eventually(lambda: bird.status(7, "").number == 2)
    status = bird.status(7, "")
    assert (status.prefixes, status.established, status.last_error) == (7, 1, "")
    assert [(each.peer, each.state, each.prefixes, each.last_error) for each in status.sessions] == [
        ("b", "Idle", 0, "Received: Bad peer AS"),
        ("a", "Established", 7, ""),
    ]


async def test_many_sessions_are_counted_and_the_first_are_named(kube: FakeKube, control: Control, bird: Bird) -> None:
    names = [f"router-{number}" for number in range(SESSIONS_SHOWN_MAX + 10)]
    for name in names:
        kube.put(BGP_PEERS, peer(name))
    control.found = [Session(protocol_name(name), "Established", 1) for name in names]
    await eventually(lambda: bird.status(1, "").number == len(names))
    assert len(bird.status(1, "").sessions) == SESSIONS_SHOWN_MAX


async def test_a_bird_that_refuses_or_is_away_is_said_and_tried_again(
    kube: FakeKube, control: Control, bird: Bird
) -> None:
    control.refuses = "bird.conf:3:1 syntax error"
    kube.put(BGP_PEERS, peer("a"))
    await eventually(lambda: bird.status(0, "").last_error == control.refuses)
    control.runs, control.refuses = False, ""
    kube.put(BGP_PEERS, peer("b"))
    await eventually(lambda: "BIRD does not answer" in bird.status(0, "").last_error)
    control.runs = True
    await eventually(lambda: bird.status(0, "").last_error == "")
    assert bird.status(0, "no table").last_error == "no table"
