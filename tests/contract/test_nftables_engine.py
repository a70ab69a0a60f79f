"""The engine of nftables maps against a real kernel: packets go where an independent model says.

Clients and servers are processes of one network namespace: each endpoint is an address of its loopback device, and
answers with that address.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftables.engine import NftablesEngine
from kube_nftlb.agent.engine.nftables.layout import TABLE
from kube_nftlb.agent.engine.nftables.reading import TableElements
from kube_nftlb.agent.engine.nftables.state_file import StateFile
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.agent.sync.changes import FarmChange
from kube_nftlb.agent.table import layout
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.api.values import Scheduler
from kube_nftlb.netfilter.notifications import Notifications
from tests.builders import farm, raw_backend
from tests.contract.nftables_node import HERE, LIMITED, VIPS, Node, ask, listed, nft, reached, spec
from tests.contract.older_table import add_older_table, end_older_table
from tests.contract.servers import ENDPOINTS, PORT


async def test_round_robin_is_even_and_weights_count(node: Node) -> None:
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:3]))
    assert reached(VIPS[0], 30) == dict.fromkeys(ENDPOINTS[:3], 10)
    heavy = spec(VIPS[0], *ENDPOINTS[:2])
    heavy["backends"][0]["weight"] = 3
    await node.put("web", heavy)
    assert reached(VIPS[0], 40) == {ENDPOINTS[0]: 30, ENDPOINTS[1]: 10}
    assert node.engine.sent["web"].endpoints == 2


@pytest.mark.parametrize("scheduler", ["hash", "symhash"])
async def test_a_hash_is_of_the_client(node: Node, scheduler: str) -> None:
    wanted = spec(VIPS[0], *ENDPOINTS, scheduler=scheduler, **({"schedParam": "srcip"} if scheduler == "hash" else {}))
    await node.put("web", wanted)
    if scheduler == "hash":
        assert len(reached(VIPS[0], 10, source=ENDPOINTS[0])) == 1
    assert len({ask(VIPS[0], source=f"127.0.1.{each}") for each in range(1, 60)}) > 2


async def test_a_client_is_remembered_until_its_endpoint_goes(node: Node) -> None:
    sticky = {"persistence": "srcip", "persistTTL": 60, "scheduler": "weight"}
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:4], **sticky))
    clients = [f"127.0.1.{number}" for number in range(1, 13)]
    first = {client: ask(VIPS[0], source=client) for client in clients}
    assert len(set(first.values())) > 1
    assert {client: ask(VIPS[0], source=client) for client in clients} == first
    gone = first[clients[0]]
    left = [ip for ip in ENDPOINTS[:4] if ip != gone]
    await node.put("web", spec(VIPS[0], *left, ENDPOINTS[4], **sticky))
    second = {client: ask(VIPS[0], source=client) for client in clients}
    assert {client: to for client, to in second.items() if first[client] != gone} == {
        client: to for client, to in first.items() if to != gone
    }
    assert gone not in second.values()
    assert {client: ask(VIPS[0], source=client) for client in clients} == second


async def test_a_fixed_session_wins(node: Node) -> None:
    sessions = [{"client": "127.0.1.9", "backend": "pod-10-244-0-3"}]
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:4], persistence="srcip", sessions=sessions))
    assert reached(VIPS[0], 5, source="127.0.1.9") == {ENDPOINTS[2]: 5}


@pytest.mark.parametrize("sticky", [{}, {"persistence": "srcip", "persistTTL": 60}])
async def test_clients_of_the_node_reach_all_endpoints_with_the_policy_local(
    node: Node, sticky: dict[str, Any]
) -> None:
    backends = [raw_backend("here", ENDPOINTS[0], node="here"), raw_backend("there", ENDPOINTS[1], node="there")]
    addresses = [{"type": "LoadBalancer", "ip": VIPS[0], "ports": "80"}]
    local = {"trafficPolicy": "Local", "mode": "dnat", "masquerade": "AsNeeded"}
    await node.put("web", spec(VIPS[0], addresses=addresses, **local, **sticky) | {"backends": backends})
    clients = [f"127.0.1.{number}" for number in range(1, 13)]
    first = {client: ask(VIPS[0], source=client) for client in clients}
    assert set(first.values()) == set(ENDPOINTS[:2])
    if sticky:
        assert {client: ask(VIPS[0], source=client) for client in clients} == first
    await node.put("web", spec(VIPS[0], addresses=addresses, **local, **sticky) | {"backends": backends[1:]})
    assert reached(VIPS[0], 4) == {ENDPOINTS[1]: 4}, "without a local endpoint only others drop connections"


async def test_no_map_of_verdicts_is_looked_up_behind_a_chain_that_elements_lead_to(node: Node) -> None:
    addresses = [{"type": "LoadBalancer", "ip": VIPS[0], "ports": "80"}]
    backends = [raw_backend("here", ENDPOINTS[0], node="here"), raw_backend("there", ENDPOINTS[1], node="there")]
    sticky = {"persistence": "srcip", "trafficPolicy": "Local"}
    await node.put("web", spec(VIPS[0], addresses=addresses, **sticky) | {"backends": backends})
    elements = (line for line in listed().splitlines() if " vmap " not in line)
    led_to = {each for line in elements for each in re.findall(r" : (?:goto|jump) (\S+?),? ?(?:}|$)", line)}
    assert {each.partition("-")[0] for each in led_to} >= {"by", "known", "pick", "remember"}
    looking_up = {name for name in led_to if " vmap " in listed(f"chain inet {TABLE} {name}")}
    assert not looking_up


async def test_only_what_nftlb_would_translate_is_refused_at_addresses_that_are_given_up(node: Node) -> None:
    # As nftlb does, for all ports.
    dnat = f"ip daddr {VIPS[0]} meta l4proto tcp dnat to {ENDPOINTS[4]}:{PORT}"
    nft(f"table ip nftlb {{ chain output {{ type nat hook output priority -100; {dnat}; }}; }}")
    await node.put("web", spec(VIPS[0], ENDPOINTS[0]))
    assert (ask(VIPS[0]), ask(VIPS[0], 81)) == (ENDPOINTS[0], ENDPOINTS[4])
    for listener, more in (
        (Listener(VIPS[0], "All", ALL_PORTS), "refused"),
        (Listener(VIPS[0], "TCP", 80), ENDPOINTS[4]),
    ):
        await node.table.update({"gone": layout.given_up([listener])})
        assert (ask(VIPS[0]), ask(VIPS[0], 81)) == (ENDPOINTS[0], more)
        await node.put("web", None)
        assert (ask(VIPS[0]), ask(VIPS[0], 81)) == ("refused", more)
        await node.put("web", spec(VIPS[0], ENDPOINTS[0]))


@pytest.mark.parametrize("look", [NftablesEngine.drift, NftablesEngine.repair])
async def test_a_table_of_others_that_goes_while_this_one_is_read_hurts_nobody(
    node: Node, monkeypatch: pytest.MonkeyPatch, look: Callable[[NftablesEngine], Awaitable[str | None]]
) -> None:
    """The kernel goes on by numbers: it leaves out as many chains of ours as it had told of a table before it."""
    add_older_table()
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:3]))
    assert await node.engine.drift() is None
    before = listed()
    gone = end_older_table(monkeypatch)
    assert await look(node.engine) is None
    assert gone
    assert listed() == before


async def test_chains_and_rules_do_not_grow_with_services(node: Node) -> None:
    counts = {}
    for number in range(600):
        vip = f"10.96.{1 + number // 200}.{number % 200}"
        kind = {"persistence": "srcip"} if number % 2 else {}
        await node.put(f"web-{number}", spec(vip, *ENDPOINTS[: 1 + number % 3], **kind))
        if number in (299, 599):
            counts[number] = sum(line.lstrip().startswith("chain ") for line in listed().splitlines())
    # Each number of endpoints, sticky or not, has up to 16 counters of the scheduler rr: nearly all are in use by then.
    assert counts[599] <= counts[299] + 5
    assert counts[599] < 100
    assert reached("10.96.3.199", 6).total() == 6


async def test_a_restarted_agent_adopts_and_writes_nothing(node: Node, tmp_path: Path) -> None:
    own = {"backends": [raw_backend("a", ENDPOINTS[0], nodeName="here")]}
    farms = {
        "plain": spec(VIPS[0], *ENDPOINTS[:3]),
        "sticky": spec(VIPS[1], *ENDPOINTS[:3], persistence="srcip", scheduler="weight"),
        "refusing": spec(VIPS[2]),
        "local": spec(VIPS[3], trafficPolicy="Local", mode="dnat", masquerade="AsNeeded") | own,
    }
    for name, wanted in farms.items():
        await node.put(name, wanted)
    before = listed()
    again = await Node.open(tmp_path)
    assert dict(again.engine.sent) == dict(node.engine.sent)
    assert await again.engine.drift() is None
    # A farm may be kept as it is, because its spec is not understood, say: what it uses must not be swept.
    assert f"{ENDPOINTS[0]} . {ENDPOINTS[0]}" in before
    await again.engine.maintain(busy=False)
    assert sorted(listed().split()) == sorted(before.split())
    everybody = Notifications(Notifications.open().socket, ())
    for name, wanted in farms.items():
        await again.put(name, wanted)
    assert everybody.others() == set()
    everybody.close()
    assert sorted(listed().split()) == sorted(before.split())
    again.close()


async def test_a_restarted_agent_reads_the_table_again_if_it_could_not(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:3]))
    before = listed()

    async def busy(*_: object) -> None:
        monkeypatch.undo()
        raise errors.KernelError("netfilter does not answer")

    monkeypatch.setattr(TableElements, "dump", busy)
    again = await Node.open(tmp_path)
    assert dict(again.engine.sent) == dict(node.engine.sent)
    await again.put("web", spec(VIPS[0], *ENDPOINTS[:3]))
    assert sorted(listed().split()) == sorted(before.split())
    assert await again.engine.drift() is None
    again.close()


DAMAGE = [
    "flush map inet {table} endpoints-ip",
    "delete element inet {table} services-ip {{ tcp . 10.96.0.1 . 80 }}",
    "add element inet {table} services-ip {{ tcp . 10.96.0.99 . 80 : goto refuse }}",
    "delete element inet {table} endpoints-ip {{ tcp . 10.96.0.1 . 80 . 8000:1 }}",
    "flush chain inet {table} prerouting",
    "flush chain inet {table} refuse",
    "delete table inet {table}",
]


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_found_and_mended(node: Node, damage: str) -> None:
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:3]))
    await node.put("sticky", spec(VIPS[1], *ENDPOINTS[:3], persistence="srcip"))
    assert await node.engine.drift() is None
    nft(damage.format(table=TABLE))
    assert await node.engine.drift() is not None
    await node.engine.repair()
    assert await node.engine.drift() is None
    assert reached(VIPS[0], 30) == dict.fromkeys(ENDPOINTS[:3], 10)
    assert ask(VIPS[1]) in ENDPOINTS


async def test_a_listener_passes_from_one_farm_to_another_that_both_restrict_clients(node: Node) -> None:
    def change(name: str, vip: str, admitted: str, ip: str) -> FarmChange:
        addresses = [{**LIMITED, "ip": vip, "sourceRanges": [admitted]}]
        wanted = node_farm(farm(name, **{**spec(vip, ip), "addresses": addresses}), HERE, None)
        return FarmChange(name, wanted)

    await node.apply(change("a", VIPS[0], "127.0.1.0/24", ENDPOINTS[0]))
    await node.apply(change("b", VIPS[1], "127.0.2.0/24", ENDPOINTS[1]))
    exchanged = [change("a", VIPS[1], "127.0.1.0/24", ENDPOINTS[0]), change("b", VIPS[0], "127.0.2.0/24", ENDPOINTS[1])]
    applied = await node.applier.apply(exchanged)
    assert not {**applied.refused, **applied.rules_refused}
    assert [ask(VIPS[0], source=f"127.0.{number}.1") for number in (1, 2)] == ["nothing", ENDPOINTS[1]]
    assert [ask(VIPS[1], source=f"127.0.{number}.1") for number in (1, 2)] == [ENDPOINTS[0], "nothing"]


async def test_messages_are_numbered_anew_in_the_middle_of_a_transaction(node: Node) -> None:
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:3]))
    node.engine._netfilter._sequence = (1 << 32) - 4  # type: ignore[attr-defined]  # noqa: SLF001 - once in years
    await node.put("web", spec(VIPS[0], *ENDPOINTS[1:4]))
    assert reached(VIPS[0], 30) == dict.fromkeys(ENDPOINTS[1:4], 10)
    assert await node.engine.drift() is None


async def test_a_table_that_goes_before_the_nodes_pods_are_known_is_written_with_them(node: Node) -> None:
    """As while an agent that has started waits for the API server: it adopts the table only after that."""
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:3]))
    nft(f"delete table inet {TABLE}")
    await node.engine.set_node(replace(HERE, pod_cidrs={"ipv4": ("10.244.7.0/24",)}))
    assert await node.engine.is_missing()
    await node.engine.repair()
    assert await node.engine.drift() is None
    assert "10.244.7.0/24" in listed(f"set inet {TABLE} local-pods-ip")
    assert reached(VIPS[0], 30) == dict.fromkeys(ENDPOINTS[:3], 10)


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_change_beside_damage_is_made(node: Node, damage: str) -> None:
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:3]))
    nft(damage.format(table=TABLE))
    await node.put("web", spec(VIPS[0], *ENDPOINTS[1:4]))
    await node.put("other", spec(VIPS[1], *ENDPOINTS[:1]))
    if await node.engine.drift() is not None:
        await node.engine.repair()
    assert reached(VIPS[0], 30) == dict.fromkeys(ENDPOINTS[1:4], 10)
    assert ask(VIPS[1]) == ENDPOINTS[0]


async def test_rules_that_went_while_no_agent_ran_are_back_before_anything_is_known(node: Node, tmp_path: Path) -> None:
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:3]))
    await node.put("limited", spec(VIPS[1], ENDPOINTS[0]) | {"addresses": [LIMITED]})
    await node.engine.begin(dict)
    await node.engine.aclose()
    nft("flush ruleset")
    again = await Node.open(tmp_path)
    assert reached(VIPS[0], 30) == dict.fromkeys(ENDPOINTS[:3], 10)
    # Nothing would keep clients out of it before the agent knows its ranges.
    assert again.engine.sent.keys() == {"web"}
    again.close()


async def test_an_agent_that_ends_before_it_knows_what_restricts_farms_does_not_save_them(
    node: Node, tmp_path: Path
) -> None:
    await node.put("web", spec(VIPS[0], *ENDPOINTS[:3]))
    await node.put("limited", spec(VIPS[1], ENDPOINTS[0]) | {"addresses": [LIMITED]})
    await node.engine.begin(dict)
    await node.engine.aclose()
    assert list(StateFile(tmp_path / "nftables.json").read()) == ["web"]
    ending = await Node.open(tmp_path)
    assert ending.engine.sent.keys() == {"web", "limited"}
    await ending.engine.aclose()
    ending.close()
    assert list(StateFile(tmp_path / "nftables.json").read()) == ["web"]


async def test_farms_that_come_after_a_restore_have_numbers_of_their_own(node: Node, tmp_path: Path) -> None:
    sticky = {"persistence": "srcip", "scheduler": "weight"}
    for number in range(2):
        await node.put(f"sticky-{number}", spec(VIPS[number], *ENDPOINTS[:3], **sticky))
    await node.engine.begin(dict)
    await node.engine.aclose()
    nft("flush ruleset")
    again = await Node.open(tmp_path)
    for number in range(2, 4):
        await again.put(f"sticky-{number}", spec(VIPS[number], *ENDPOINTS[:3], **sticky))
    assert len(set(re.findall(r"80 : ([0-9a-f]+:[0-9a-f]+)", listed(f"map inet {TABLE} sticky-ip")))) == 4
    again.close()


MANY = 6_000


def many_backends() -> tuple[Backend, ...]:
    """More than nftlb has marks for, as a farm gets them from EndpointSlices."""
    ips = [f"10.200.{number // 250}.{number % 250 + 1}" for number in range(MANY)]
    return tuple(Backend(name=ip.replace(".", "-"), ip=ip, port=PORT, ready=True) for ip in ips)


@pytest.mark.parametrize(("scheduler", "more"), [("rr", {}), ("hash", {"schedParam": "srcip srcport"})])
async def test_more_than_4095_backends(node: Node, scheduler: Scheduler, more: dict[str, Any]) -> None:
    written = farm(name="web", **spec(VIPS[0], scheduler=scheduler, **more))
    many = written.model_copy(update={"spec": written.spec.model_copy(update={"backends": many_backends()})})
    wanted = node_farm(many, HERE, None)
    await node.apply(FarmChange("web", wanted))
    asked = reached(VIPS[0], MANY if scheduler == "rr" else 200)
    assert asked.keys() <= {backend.ip for backend in many_backends()}
    if scheduler == "rr":
        assert set(asked.values()) == {1}, "each was chosen once"
    else:
        assert max(int(ip.split(".")[2]) for ip in asked) > 4095 // 250, "also those that nftlb has no marks for"


class Packets(RuleBasedStateMachine):
    """Random farms and changes; the model knows which endpoints a VIP has, and in which order nothing matters."""

    folder = Path()

    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.node = self.loop.run_until_complete(Node.open(self.folder))
        for name in list(self.node.engine.sent):
            self.loop.run_until_complete(self.node.put(name, None))
        self.model: dict[int, tuple[str, ...]] = {}

    def teardown(self) -> None:
        self.node.close()
        self.loop.close()

    @rule(
        number=st.integers(0, len(VIPS) - 1),
        ips=st.lists(st.sampled_from(ENDPOINTS), unique=True, max_size=4),
        kind=st.sampled_from(
            [{}, {"scheduler": "weight"}, {"scheduler": "hash"}, {"scheduler": "symhash"}, {"persistence": "srcip"}]
        ),
        mode=st.sampled_from(["snat", "dnat"]),
    )
    def put(self, number: int, ips: list[str], kind: dict[str, Any], mode: str) -> None:
        wanted = spec(VIPS[number], *ips, mode=mode, masquerade="AsNeeded", **kind)
        self.loop.run_until_complete(self.node.put(f"farm-{number}", wanted))
        self.model[number] = tuple(ips)

    @rule(number=st.integers(0, len(VIPS) - 1))
    def remove(self, number: int) -> None:
        self.loop.run_until_complete(self.node.put(f"farm-{number}", None))
        self.model.pop(number, None)

    @rule()
    def restart_the_agent(self) -> None:
        self.node.close()
        self.node = self.loop.run_until_complete(Node.open(self.folder))

    @rule()
    def sweep(self) -> None:
        self.loop.run_until_complete(self.node.engine.maintain(busy=False))

    @invariant()
    def packets_go_where_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        for number, ips in self.model.items():
            answers = {ask(VIPS[number], source=f"127.0.1.{client}") for client in range(1, 5)}
            assert answers <= (set(ips) or {"refused"}), (number, ips, answers)
        assert self.loop.run_until_complete(self.node.engine.drift()) is None


@pytest.mark.timeout(240)
def test_packets_go_where_a_model_says(endpoints: None, tmp_path: Path) -> None:  # noqa: ARG001 - by name
    Packets.folder = tmp_path
    case = Packets.TestCase
    case.settings = settings(
        max_examples=15, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
    )
    case().runTest()
