"""Schedulers, persistence and the other fields that choose a backend: each value loads and leaves no trace."""

import itertools
import json
import subprocess
from typing import Any, get_args

import pytest

from kube_nftlb.agent.engine.nftlb.steps import plan_steps
from kube_nftlb.api import values
from kube_nftlb.nftlb import encoding, layout
from tests.builders import farm, raw_backend
from tests.contract.bench import Bench
from tests.contract.test_layout import BACKENDS, IPV4, IPV6, bring, engine
from tests.views import translated

__all__ = ["engine"]

pytestmark = pytest.mark.timeout(300)

BASES = {"ipv4": IPV4, "ipv6": IPV6}
WHOLE: dict[str, dict[str, Any]] = {
    "ipv4": {"protocol": "All", "addresses": [{"ip": "10.96.0.10"}]},
    "ipv6": {"protocol": "All", "family": "ipv6", "addresses": [{"ip": "fd00:96::a"}]},
}
BYSTANDER = {"ipv4": ("10.96.1.1", "10.244.9.9"), "ipv6": ("fd00:96::1:1", "fd00:244::99")}
PORTLESS = {
    family: [{key: value for key, value in each.items() if key != "port"} for each in backends]
    for family, backends in BACKENDS.items()
}


def _valid(changes: dict[str, Any]) -> bool:
    try:
        farm(**changes)
    except ValueError:
        return False
    return True


def _choices() -> list[dict[str, Any]]:
    """Every scheduler and schedParam, and every persistence, in each protocol and family, in one mode or another."""
    schedulers = [
        {"scheduler": scheduler, "schedParam": param}
        for scheduler in get_args(values.Scheduler)
        for param in (values.FIELD_SETS if scheduler == "hash" else ("none",))
    ]
    persistences = [{"persistence": persistence} for persistence in values.PERSISTENCE_SETS]
    combined = [
        scheduler | persistence for scheduler in schedulers[:2] + schedulers[-1:] for persistence in persistences
    ]
    every = []
    for (family, protocol), mode in zip(
        itertools.product(BASES, get_args(values.Protocol)), itertools.cycle(("snat", "dnat")), strict=False
    ):
        base = {**BASES[family], "protocol": protocol} if protocol != "All" else WHOLE[family]
        given = [*schedulers, *persistences, *(combined if protocol == "TCP" else [])]
        every += [{**base, "mode": mode, **changes} for changes in given]
    return [changes for changes in every if _valid({**changes, "backends": []})]


def _kind(changes: dict[str, Any]) -> str:
    return "combined" if {"scheduler", "persistence"} <= changes.keys() else str(changes["protocol"])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["TCP", "UDP", "SCTP", "All", "combined"])
async def test_every_scheduler_sched_param_and_persistence_is_loaded(engine: Bench, kind: str) -> None:
    choices = [changes for changes in _choices() if _kind(changes) == kind]
    assert len(choices) > 50
    failed = []
    for number, changes in enumerate(choices):
        name = f"farm-{number}"
        backends = (PORTLESS if changes["protocol"] == "All" else BACKENDS)[changes.get("family", "ipv4")]
        for count in (1, 3):
            wanted = farm(name, **changes, backends=backends[:count])
            seen = translated(wanted, engine.present.get(name))
            errors = await engine.mirror.send_steps(plan_steps(engine.present, {name: seen}))
            if fault := errors.get(name) or await engine.verifier.farm(name):
                failed.append((changes, count, fault))
        await engine.mirror.sync()
        assert plan_steps(engine.present, {name: seen}) == [], "what nftlb shows is what it was sent"
        await engine.mirror.send_steps(plan_steps(engine.present, {name: None}))
    assert failed == []
    assert await engine.verifier.base() is None
    assert _recoveries(engine) == 0


def _recoveries(engine: Bench) -> int:
    log = engine.log
    return log.read_text(errors="replace").count("recovery in progress")


REMEMBERED = {
    "srcip": "10.1.0.7",
    "srcmac": "02:00:00:00:00:0a",
    "srcport": "4000",
    "srcip srcport srcmac": "10.1.0.7 . 4000 . 02:00:00:00:00:0a",
    "srcport srcmac dstmac": "4000 . 02:00:00:00:00:0a . 02:00:00:00:00:0b",
}


@pytest.mark.parametrize(
    ("family", "persistence"),
    [pair for pair in itertools.product(BASES, REMEMBERED) if pair != ("ipv6", "srcip srcport srcmac")],
)
async def test_clients_are_remembered_as_long_as_their_backend_is_there(
    engine: Bench, family: str, persistence: str
) -> None:
    changes: dict[str, Any] = {"persistence": persistence, "backends": BACKENDS["ipv4"]}
    client = REMEMBERED[persistence] if family == "ipv4" else REMEMBERED[persistence].replace("10.1.0.7", "fd00:1::7")
    table = "ip" if family == "ipv4" else "ip6"
    ip, backend_ip = BYSTANDER[family]
    several = [{"ip": ip, "ports": "80"}, {"ip": ip, "ports": "81"}]
    bystander = farm(
        "bystander", family=family, persistence="srcip", addresses=several, backends=[raw_backend("z", backend_ip)]
    )

    async def remembered() -> list[tuple[str, int]]:
        found = await engine.reader.sessions(table, "persist-web--http")  # type: ignore[arg-type]  # one of two
        return [(encoding.session_text(persistence, table, key), mark) for key, mark in found.items()]  # type: ignore[arg-type]  # one of two

    await bring(engine, bystander, "bystander")
    await bring(engine, farm(**_translated(changes, family)))
    mark = engine.present["web--http"].backends["b"].mark
    await engine.nft.run(f"add element {table} nftlb persist-web--http {{ {client} : {0x80000000 + mark:#x} }}")
    assert await remembered() == [(client, mark)]
    for kept in (
        {"backends": BACKENDS["ipv4"][1:]},
        {"persistTTL": 30, "mode": "dnat"},
        {"mode": "snat"},
        {"addresses": [{"ip": "10.96.0.10", "ports": "80,81"}]},
        {"persistTTL": 20},
        {"addresses": [{"ip": "10.96.0.10", "ports": "81"}]},
    ):
        changes |= kept
        await bring(engine, farm(**_translated(changes, family)))
        assert await remembered() == [(client, mark)], kept
    await engine.mirror.reload("web--http")
    await engine.mirror.rebuild()
    await bring(engine, None, "bystander")
    assert await remembered() == [(client, mark)]
    await engine.stale.release("web--http", {99})
    assert await remembered() == [(client, mark)]
    await bring(engine, farm(**_translated(changes | {"backends": BACKENDS["ipv4"][:1]}, family)))
    await engine.stale.release("web--http", set())
    assert await remembered() == []


async def test_a_client_returning_during_a_session_replay_displaces_no_other(
    engine: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bring(engine, farm(persistence="srcip", backends=BACKENDS["ipv4"]))
    first, second = (engine.present["web--http"].backends[name].mark for name in ("a", "b"))
    run, map_ = engine.nft.run, "ip nftlb persist-web--http"
    await run(f"add element {map_} {{ 10.1.0.7 : {0x80000000 + first:#x}, 10.1.0.8 : {0x80000000 + first:#x} }}")
    added: list[str] = []

    async def run_beside_a_packet(commands: str) -> None:
        if commands.startswith("add element"):
            if not added:
                await run(f"add element {map_} {{ 10.1.0.8 : {0x80000000 + second:#x} }}")
            added.append(commands)
        await run(commands)

    monkeypatch.setattr(engine.nft, "run", run_beside_a_packet)
    await engine.mirror.reload("web--http")
    assert len(added) == 2, "the first time the kernel refuses it"
    found = await engine.reader.sessions("ip", "persist-web--http")
    assert {encoding.session_text("srcip", "ip", key): mark for key, mark in found.items()} == {
        "10.1.0.7": first,
        "10.1.0.8": second,
    }


def _ruleset() -> str:
    return subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout


def _walks() -> dict[str, list[dict[str, Any]]]:
    """Changes one after the other, of an IPv4 farm; IPv6 has the same with other addresses."""
    a, b, c = BACKENDS["ipv4"]
    return {
        "states of backends": [
            {"backends": [a, b, c]},
            {"backends": [{**a, "state": "drain"}, b, c]},
            {"backends": [{**a, "state": "off"}, b, c]},
            {"backends": [{**a, "state": "down"}, b, {**c, "state": "drain"}]},
            {"backends": [a, {**b, "state": "drain"}, c]},
            {"backends": [{**a, "state": "drain"}, {**b, "state": "drain"}, {**c, "state": "drain"}]},
            {"backends": [{**a, "state": "drain"}]},
            {"backends": [{**a, "state": "off"}]},
            {"backends": [{**a, "state": "drain"}, b]},
            {"backends": [a, b]},
        ],
        "a new farm drains": [{"backends": [{**a, "state": "drain"}, {**b, "state": "drain"}]}, {"backends": [a, b]}],
        "states of the farm": [
            {"backends": [a, b]},
            {"backends": [a, b], "state": "drain"},
            {"backends": [a, b], "state": "off"},
            {"backends": [a, b], "state": "drain"},
            {"backends": [a, b], "state": "down"},
            {"backends": [a, b], "state": "up"},
        ],
        "priorities": [
            {"backends": [a, {**b, "priority": 2}, {**c, "priority": 3}]},
            {"backends": [{**a, "ready": False}, {**b, "priority": 2}, {**c, "priority": 3}]},
            {"backends": [{**a, "state": "drain"}, {**b, "priority": 2}, {**c, "priority": 3}]},
            {"backends": [a, {**b, "priority": 2}, {**c, "priority": 3}], "priority": 2},
            {"backends": [{**c, "priority": 3}]},
        ],
        "marks": [
            {"backends": [a, b, c]},
            {"backends": [{**a, "mark": 4095}, b, c]},
            {"backends": [{**a, "mark": 3}, b, c]},
            {"backends": [{**a, "mark": 5}, {**b, "mark": 6}, c]},
            {"backends": [{**a, "mark": 6}, {**b, "mark": 5}, c]},
            {"backends": [{**b, "mark": 6}, {**c, "mark": 5}]},
        ],
        "sessions": [
            {"persistence": "srcip", "sessions": [("10.1.0.1", "a")]},
            {"persistence": "srcip", "sessions": [("10.1.0.1", "b"), ("10.1.0.2", "a")]},
            {"persistence": "srcip", "sessions": [("10.1.0.2", "a")], "backends": [{**a, "state": "drain"}, b, c]},
            {
                "persistence": "srcip",
                "sessions": [("10.1.0.2", "a")],
                "persistTTL": 7,
                "backends": [{**a, "state": "drain"}, b],
            },
            {"persistence": "srcip", "sessions": [("10.1.0.2", "a")], "backends": [{**a, "state": "off"}, b, c]},
            {"persistence": "srcip", "sessions": [("10.1.0.2", "a"), ("10.1.0.3", "nobody")]},
            {"persistence": "srcip", "sessions": [("10.1.0.2", "a")], "backends": [{**a, "mark": 77}, b]},
            {"persistence": "srcmac", "sessions": [("02:00:00:00:00:0a", "b")]},
            {"persistence": "srcport dstport", "sessions": [("4000 . 80", "c"), ("4001 . 80", "a")]},
            {"persistence": "srcport dstport", "sessions": [("4001 . 80", "b")], "backends": [b]},
            {"persistence": "srcip", "sessions": [("10.1.0.9", "b")], "backends": [b]},
            {"persistence": "none", "backends": [b]},
        ],
        "ports": [
            {"addresses": [{"ip": "10.96.0.10", "ports": "80,443,8000-8010"}], "backends": PORTLESS["ipv4"]},
            {"addresses": [{"ip": "10.96.0.10", "ports": "80,8005-8020"}], "backends": PORTLESS["ipv4"][:1]},
            {"addresses": [{"ip": "10.96.0.10", "ports": "80,8005-8020"}], "backends": [a, b]},
            {"addresses": [{"ip": "10.96.0.10", "ports": "80"}], "backends": PORTLESS["ipv4"][1:]},
            {**WHOLE["ipv4"], "backends": PORTLESS["ipv4"]},
            {
                "protocol": "All",
                "addresses": [{"ip": "10.96.0.10"}, {"ip": "10.96.0.11"}],
                "backends": PORTLESS["ipv4"][1:],
            },
            {"protocol": "All", "addresses": [{"ip": "10.96.0.11"}], "backends": []},
            {**WHOLE["ipv4"], "backends": PORTLESS["ipv4"][2:], "persistence": "srcip", "intraConnect": False},
            {"addresses": [{"ip": "10.96.0.10", "ports": "80"}], "backends": [a, b]},
        ],
    }


def _translated(changes: dict[str, Any], family: str) -> dict[str, Any]:
    spec = {"addresses": [{"ip": "10.96.0.10", "ports": "80"}], "backends": BACKENDS["ipv4"], **changes}
    spec["sessions"] = [{"client": client, "backend": backend} for client, backend in spec.get("sessions", ())]
    if family == "ipv6":
        text = json.dumps({**spec, "family": family})
        for ipv4, ipv6 in (("10.96.0.", "fd00:96::"), ("10.244.1.", "fd00:244::"), ("10.1.0.", "fd00:1::")):
            text = text.replace(ipv4, ipv6)
        spec = json.loads(text)
    return spec


@pytest.mark.parametrize(
    "present",
    [
        (),
        ("bystander", "whole"),
        *(pytest.param((name,), marks=pytest.mark.long) for name in ("bystander", "whole")),
    ],
    ids=lambda present: " and ".join(present) or "alone",
)
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize("walk", _walks())
async def test_changes_reach_the_kernel_leave_bystanders_alone_and_no_trace(
    engine: Bench, family: str, walk: str, present: tuple[str, ...]
) -> None:
    ip, backend_ip = BYSTANDER[family]
    whole_ip = ip + "2"
    bystanders = {
        "bystander": farm(
            "bystander",
            **{**BASES[family], "addresses": [{"ip": ip, "ports": "80"}]},
            backends=[raw_backend("z", backend_ip)],
        ),
        "whole": farm(
            "whole",
            **{**WHOLE[family], "addresses": [{"ip": whole_ip}]},
            backends=[{"name": "z", "ip": backend_ip}],
        ),
    }
    for name in present:
        await bring(engine, bystanders[name], name)
    for changes in _walks()[walk]:
        await bring(engine, farm(**_translated(changes, family)))
        for name in present:
            assert await engine.verifier.farm(name) is None
    await bring(engine, None)
    for name in present:
        assert await engine.verifier.farm(name) is None
        await bring(engine, None, name)
    await engine.mirror.send_steps(plan_steps(engine.present, dict.fromkeys(engine.present)))
    assert engine.present == {}
    assert _recoveries(engine) == 0
    ruleset = _ruleset()
    for trace in ("web--http", "bystander", "whole"):
        assert trace not in ruleset
    for table in layout.FAMILIES:
        assert await engine.reader.listeners(table) == set()
