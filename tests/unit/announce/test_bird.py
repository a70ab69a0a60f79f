"""The configuration of BIRD, what it says of its sessions, and the process that runs it."""

import asyncio
import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from glob import glob
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.agent.announcing.pools import Pools
from kube_nftlb.agent.shutdown import HAND_OVER_S
from kube_nftlb.announce.bird import answers
from kube_nftlb.announce.bird.answers import Session
from kube_nftlb.announce.bird.config import Node, protocol_name, render
from kube_nftlb.announce.bird.control import BirdControl
from kube_nftlb.announce.bird.files import (
    CONFIG,
    PASSWORDS,
    SOCKET,
    detection_line,
    detection_s,
    password_config,
    password_file,
)
from kube_nftlb.announce.bird.process import AGENT_ENDS_S, BirdProcess
from kube_nftlb.api.address_pool import AddressPool
from kube_nftlb.api.bgp_peer import BGPPeer
from tests.builders.pools import raw_judged, raw_pool

NODE = Node("node-1", "172.31.0.11", 4242)


def peer(name: str = "router-1", **spec: Any) -> BGPPeer:
    whole = {"address": "172.31.0.1", "asn": 65000, "myAsn": 65001, **spec}
    return BGPPeer.model_validate({"metadata": {"name": name}, "spec": whole})


def pool(*ranges: str, **bgp: Any) -> AddressPool:
    return AddressPool.model_validate(
        {"metadata": {"name": "office"}, "spec": {"ranges": ranges, "announce": {"bgp": bgp}}}
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ["local as 65001;", "neighbor 172.31.0.1 port 179 as 65000;", "hold time 90;", "ipv4 { import none;"]),
        ({"address": "fd00::1", "port": 1790}, ["neighbor fd00::1 port 1790 as 65000;", "ipv6 { import none;"]),
        ({"holdTime": 9}, ["hold time 9;"]),
        ({"bfd": {}}, ["bfd { interval 300 ms; idle tx interval 1 s; multiplier 3; };"]),
        ({"bfd": {"intervalMs": 100, "multiplier": 5}}, ["bfd { interval 100 ms;", "multiplier 5; };"]),
        ({"passwordKey": "r1"}, ["disabled;", 'include "/run/kube-nftlb-bird-passwords/[k]ey-r1.conf";']),
        ({"communities": ["65001:7"]}, ["bgp_community.add((65001, 7));"]),
        ({"communities": ["65001:1:2"]}, ["bgp_large_community.add((65001, 1, 2));"]),
        ({"communities": ["065001:07"]}, ["bgp_community.add((65001, 7));"]),
    ],
)
def test_a_peer_is_rendered(spec: dict[str, Any], expected: list[str]) -> None:
    text = render(NODE, [peer(**spec)], [])
    assert [each for each in expected if each not in text] == []


def test_without_bfd_or_password_there_is_neither() -> None:
    text = render(NODE, [peer()], [])
    of_peer = text[text.index("protocol bgp") :]
    assert "bfd" not in of_peer
    assert "include" not in text


@pytest.mark.parametrize(
    ("pools", "expected"),
    [
        ([pool("192.0.2.0/28")], None),
        ([pool("192.0.2.0/28", communities=["1:2"])], "net ~ [ 192.0.2.0/28+ ] then { bgp_community.add((1, 2)); }"),
        ([pool("192.0.2.0/28", localPref=50)], "net ~ [ 192.0.2.0/28+ ] then { bgp_local_pref = 50; }"),
        (
            [pool("192.0.2.1-192.0.2.4", localPref=50)],
            "net ~ [ 192.0.2.1/32+, 192.0.2.2/31+, 192.0.2.4/32+ ] then { bgp_local_pref = 50; }",
        ),
        ([pool("2001:db8::/64", localPref=50)], None),
        ([pool("192.0.2.9-192.0.2.1", localPref=50)], None),
    ],
    ids=["nothing to say", "communities", "local preference", "a range", "the other family", "ends before it begins"],
)
def test_what_a_pool_says_of_its_routes_is_in_the_filter(pools: list[AddressPool], expected: str | None) -> None:
    text = render(NODE, [peer()], Pools(pools).all)
    assert (expected in text) if expected is not None else ("net ~" not in text)


def test_a_refused_pool_says_nothing_of_the_routes_of_an_accepted_one() -> None:
    office = {"ranges": ["192.0.2.64/26"], "announce": {"bgp": {"communities": ["1:2"]}}}
    mistaken = {"ranges": ["192.0.2.0/25"], "announce": {"bgp": {"communities": ["65535:666"], "localPref": 1}}}
    accepted = raw_judged(raw_pool("office", created="2026-01-02T00:00:00Z", **office))
    refused = raw_judged(raw_pool("mistaken", created="2026-01-01T00:00:00Z", **mistaken), status="False")
    text = render(NODE, [peer()], Pools(map(AddressPool.model_validate, (refused, accepted))).all)
    assert "net ~ [ 192.0.2.64/26+ ] then { bgp_community.add((1, 2)); }" in text
    assert "net ~ [ 192.0.2.0/26+ ] then { bgp_community.add((65535, 666)); bgp_local_pref = 1; }" in text


def test_routes_of_a_node_that_goes_tell_routers_to_prefer_others_whatever_the_pool_says() -> None:
    text = render(NODE, [peer()], Pools([pool("192.0.2.0/28", localPref=50)]).all)
    goes = "if krt_metric = 200 then { bgp_community.add((65535, 0)); bgp_local_pref = 0; }"
    assert text.index("bgp_local_pref = 50") < text.index(goes)


def test_only_our_routes_of_the_table_are_announced() -> None:
    text = render(NODE, [peer()], [])
    for family in (4, 6):
        assert f"ipv{family} {{ import filter {{ if krt_source = 110 then accept; reject; }}; export none; }};" in text
    assert text.count("kernel table 4242; learn;") == 2
    assert 'if proto != "addresses4" then reject;' in text


def test_a_node_without_ipv4_identifies_itself_by_a_number_of_its_own() -> None:
    ids = {render(NODE._replace(name=name, ipv4=""), [], []).split("router id ")[1].split(";")[0] for name in "ab"}
    assert len(ids) == 2
    assert "router id 172.31.0.11;" in render(NODE, [], [])


@pytest.mark.parametrize("my_asn", [65001, 65000])
def test_a_router_is_on_a_link_of_the_node_also_with_internal_bgp(my_asn: int) -> None:
    # BIRD takes an internal peer for one that is routed to, with which BFD speaks another protocol.
    assert "  direct;" in render(NODE, [peer(bfd={}, myAsn=my_asn)], []).splitlines()


@pytest.mark.parametrize(
    ("bfd", "expected"),
    [([], 0), ([None], 0), ([{}, None], 0.9), ([{"intervalMs": 1000, "multiplier": 5}, {}], 5)],
    ids=["no peers", "none with BFD", "the default", "the slowest of two"],
)
def test_a_configuration_says_how_long_routers_take_to_notice_that_bird_has_ended(
    bfd: list[dict[str, int] | None], expected: float
) -> None:
    assert (
        detection_s(render(NODE, [peer(f"router-{number}", bfd=each) for number, each in enumerate(bfd)], []))
        == expected
    )
    assert detection_s("router id 1;") == 0


def test_a_configuration_does_not_depend_on_the_order_of_peers() -> None:
    peers = [peer("a"), peer("b", address="172.31.0.2")]
    assert render(NODE, peers, []) == render(NODE, peers[::-1], [])
    assert len({protocol_name("x" * 253), protocol_name("x" * 252 + "y")}) == 2
    assert len(protocol_name("x" * 253)) < 32


@pytest.mark.parametrize("password", ['a"; }', "a\nb", "", "x" * 81])
def test_a_password_that_would_be_configuration_is_no_password(password: str) -> None:
    assert password_config(password) == ""


@pytest.mark.parametrize("key", ["router-1", ".router-1", ".", "-x", "_", "r"])
def test_the_configuration_includes_the_password_of_any_key(key: str, tmp_path: Path) -> None:
    (include,) = re.findall(r'^include "(.*)";$', render(NODE, [peer(passwordKey=key)], []), re.MULTILINE)

    def included() -> list[str]:
        return glob(include.replace(PASSWORDS, str(tmp_path)))  # noqa: PTH207 - finds what BIRD finds: no name with a dot

    assert included() == []
    for each in (key, f"{key}2"):
        (tmp_path / password_file(each)).touch()
    assert included() == [str(tmp_path / password_file(key))]


def test_a_password_switches_its_session_on() -> None:
    assert password_config("s3cret {}") == 'disabled off; description ""; password "s3cret {}";\n'


ANSWER = """2002-Name       Proto      Table      State  Since         Info
1002-device1    Device     ---        up     12:15:51.207
1006-
1002-addresses4 Kernel     master4    up     12:15:51.207
1006-  Channel ipv4
     State:          UP
     Routes:         7 imported, 0 exported, 7 preferred
1002-peer_a     BGP        ---        up     12:15:55.020  Established
1006-  BGP state:          Established
     Neighbor address: 172.31.0.1
   Channel ipv4
     Routes:         0 imported, 5 exported, 0 preferred
1002-peer_b     BGP        ---        start  12:15:55.020  Idle          BGP Error: Bad peer AS
1006-  BGP state:          Idle
     Last error:       Received: Bad peer AS
1002-peer_c     BGP        ---        down   12:15:55.020
1006-  Description:    the Secret has no usable password at none
0000
"""


BFD_ANSWER = """1020-bfd1:
 IP address                Interface  State      Since         Interval  Timeout
 172.31.0.231              eth0       Up         12:15:55.020    1.000    0.900
 fd00:31::e7               eth0       Down       12:15:56.020    1.000    0.000
 172.31.0.232              ---        Up         12:15:55.020    0.300    0.900
0000
"""


def test_the_intervals_of_bfd_are_those_of_sessions_that_are_up() -> None:
    assert answers.bfd_intervals_ms(BFD_ANSWER.splitlines()) == {"172.31.0.231": 1000, "172.31.0.232": 300}
    assert answers.bfd_intervals_ms(["0000 "]) == {}


def test_sessions_are_read_from_what_bird_says() -> None:
    assert answers.sessions(ANSWER.splitlines()) == [
        Session("peer_a", "Established", 5),
        Session("peer_b", "Idle", 0, "Received: Bad peer AS"),
        Session("peer_c", "down", 0, "the Secret has no usable password at none"),
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["0002-Reading configuration from x", "0003 Reconfigured"], ""),
        (["0002-Reading configuration from x", "8002 x:3:1 syntax error"], "x:3:1 syntax error"),
        (["9001 There is no such command"], "There is no such command"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_read(lines: list[str], expected: str) -> None:
    assert answers.error(lines) == expected
    assert [answers.is_last(line) for line in lines][-1]
    assert not any(answers.is_last(line) for line in lines[:-1])


async def test_bird_is_asked_on_its_socket(tmp_path: Path) -> None:
    asked = []

    async def bird(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"0001 BIRD 2.0.12 ready.\n")
        asked.append((await reader.readline()).decode().strip())
        writer.write(b"8002 x:3:1 syntax error\n" if asked[-1] == "configure" else ANSWER.encode())
        writer.close()

    control = BirdControl(tmp_path)
    with pytest.raises(OSError, match="No such file"):
        await control.sessions()
    async with await asyncio.start_unix_server(bird, tmp_path / SOCKET):
        assert len(await control.sessions()) == 3
        assert await control.configure() == "x:3:1 syntax error"
    assert asked == ["show protocols all", "configure"]


@pytest.mark.parametrize(
    "chunk",
    [b" a line of %b\n" % (b"many " * 200) * 10, b"a" * 100_000],
    ids=["lines without end", "a line without end"],
)
async def test_an_answer_without_end_is_an_error(tmp_path: Path, chunk: bytes) -> None:
    async def bird(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"0001 BIRD 2.0.12 ready.\n")
        await reader.readline()
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(chunk)
                await writer.drain()

    async with await asyncio.start_unix_server(bird, tmp_path / SOCKET):
        with pytest.raises(OSError, match="its answer has"):
            await BirdControl(tmp_path).sessions()


BIRD = """#!/bin/sh
echo started $$ >> {log}
trap 'echo configured >> {log}' HUP
while :; do sleep 0.05; done
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[tuple[BirdProcess, Path]]:
    """A process that runs a program in place of BIRD, which writes down what happens to it."""
    program, log = tmp_path / "bird", tmp_path / "log"
    program.write_text(BIRD.format(log=log))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "secret").mkdir()
    log.touch()
    # A shell cannot trap a signal that was ignored when it started, as by nohup; BIRD can.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    process = BirdProcess(str(program), tmp_path / "run", tmp_path / "secret", tmp_path / "passwords")
    thread = threading.Thread(target=process.run)
    thread.start()
    yield process, tmp_path
    process.end()
    thread.join(10)
    signal.signal(signal.SIGHUP, before)
    assert not thread.is_alive()


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_bird_runs_once_it_has_a_configuration_again_if_it_ends_and_until_the_agent_has(
    run: tuple[BirdProcess, Path],
) -> None:
    process, folder = run
    log = folder / "log"
    eventually((folder / "run").is_dir)
    assert log.read_text() == ""
    (folder / "run" / CONFIG).write_text("router id 1;")
    eventually(lambda: log.read_text().startswith("started "))
    (folder / "secret" / "router-1").write_text("s3cret\n")
    eventually(lambda: "configured" in log.read_text())
    piece = folder / "passwords" / "key-router-1.conf"
    assert 'password "s3cret";' in piece.read_text()
    assert piece.stat().st_mode & 0o077 == 0
    (folder / "secret" / "router-1").write_text('not"usable')
    eventually(lambda: not piece.exists())
    (folder / "run" / CONFIG).write_text(detection_line(1200))
    killed_at = time.monotonic()
    os.kill(int(log.read_text().split()[1]), signal.SIGKILL)
    eventually(lambda: log.read_text().count("started") == 2)
    # Routers that notice only now that it was gone would end its new sessions.
    assert time.monotonic() - killed_at > 1.2
    agent = BirdControl(folder / "run")
    agent.begin()
    process.end()
    time.sleep(0.5)
    bird = int(log.read_text().split()[-1])
    os.kill(bird, 0)  # The agent has not ended yet: it is there.
    agent.end()
    eventually(lambda: not Path(f"/proc/{bird}").exists())


def test_the_password_of_a_key_that_went_while_the_container_was_down_goes(
    run: tuple[BirdProcess, Path], tmp_path: Path
) -> None:
    before, _ = run
    (tmp_path / "secret" / "router-1").write_text("s3cret")
    (tmp_path / "secret" / "router-2").write_text("s3cret")
    gone, stays = (tmp_path / "passwords" / password_file(f"router-{number}") for number in (1, 2))
    eventually(lambda: gone.exists() and stays.exists())
    before.end()
    time.sleep(0.5)
    (tmp_path / "secret" / "router-1").unlink()
    again = BirdProcess("true", tmp_path / "run", tmp_path / "secret", tmp_path / "passwords")
    thread = threading.Thread(target=again.run)
    thread.start()
    try:
        eventually(lambda: not gone.exists())
        eventually(stays.exists)
    finally:
        again.end()
        thread.join(10)


def test_bird_does_not_wait_for_an_agent_that_has_died(run: tuple[BirdProcess, Path]) -> None:
    process, folder = run
    eventually((folder / "run").is_dir)
    (folder / "run" / CONFIG).write_text("router id 1;")
    log = folder / "log"
    eventually(lambda: log.read_text().startswith("started "))
    imports = "from pathlib import Path; from kube_nftlb.announce.bird.control import BirdControl"
    code = f"{imports}; agent = BirdControl(Path({str(folder / 'run')!r})); agent.begin(); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdout
        agent.stdout.readline()
        process.end()
        time.sleep(0.5)
        bird = int(log.read_text().split()[-1])
        os.kill(bird, 0)
        agent.kill()
    eventually(lambda: not Path(f"/proc/{bird}").exists())


def test_bird_waits_for_an_agent_that_hands_the_node_over_to_kube_proxy() -> None:
    assert HAND_OVER_S + 10 < AGENT_ENDS_S < 120
