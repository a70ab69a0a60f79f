"""The agent's own table: the kernel takes what we say, and has what we think it has."""

import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from ipaddress import ip_address

import pytest

from kube_nftlb.agent.sync.earlier_rules import given_up, restricted
from kube_nftlb.agent.table import layout
from kube_nftlb.agent.table.base import SET_NAMES, nftlb_port, pool_ranges
from kube_nftlb.agent.table.layout import (
    ANSWERED_HERE,
    BACKEND_MARKS,
    BACKEND_SOURCES,
    GIVEN_UP,
    HAIRPIN,
    LISTENERS,
    MARKED,
    MARKS,
    NO_ENDPOINTS,
    NOT_FROM_NODE,
    POLICY,
    POOL_RANGES,
    POOLS,
    SERVED_ADDRESSES,
    SOURCE_RANGES,
    SOURCES,
    TABLE,
    listener,
    refused,
)
from kube_nftlb.agent.table.policies import Policies, rules_owner
from kube_nftlb.agent.table.policy_references import References
from kube_nftlb.agent.table.policy_sets import admitting_nobody, policy
from kube_nftlb.agent.table.table import AgentTable
from kube_nftlb.agent.table.verify import TableVerifier
from kube_nftlb.api.address_ranges import range_of
from kube_nftlb.api.base import Family
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.listeners import ALL_PORTS, Listener
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.names import node_farm_name
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.netfilter.table_text import Chain, Contents, Element, NamedSet
from kube_nftlb.nftlb.readback import NftlbReader
from tests.builders import raw_policy
from tests.contract.older_table import add_older_table, end_older_table


class Node:
    """The table, and a look at the kernel."""

    def __init__(self, table: AgentTable, reader: NftlbReader, nft: Nft) -> None:
        self.table, self.reader, self.nft = table, reader, nft
        self.verifier = TableVerifier(table, reader)

    async def drift(self) -> str | None:
        return await self.verifier.drift()

    async def give(self, owners: Mapping[str, Contents]) -> None:
        assert not await self.table.update(owners)
        assert await self.drift() is None


@pytest.fixture
async def node(private_network: None) -> AsyncIterator[Node]:  # noqa: ARG001 - a fixture is asked for by name
    nft, reader = Nft.open(), NftlbReader.open()
    node = Node(AgentTable(nft), reader, nft)
    assert await node.drift() is not None
    await node.table.create()
    assert await node.drift() is None
    yield node
    await nft.run("flush ruleset")
    reader.close()


def refusing(*ips: str) -> Contents:
    return refused(Listener(ip, "TCP", 80) for ip in ips)


async def test_the_addresses_of_pools_come_and_go_by_family(node: Node) -> None:
    four, six = range_of("192.0.2.0/28"), range_of("2001:db8::/64")
    for ranges in ([four], [four, six], [six], [four], []):
        await node.give({POOLS: pool_ranges(ranges)})


async def test_addresses_of_pools_that_the_kernel_refuses_are_told_and_hurt_no_other(node: Node) -> None:
    overlapping = ("192.0.2.0-192.0.2.9", "192.0.2.5-192.0.2.20")
    wrong = Contents(sets=(NamedSet(f"{POOL_RANGES}-ip", "type ipv4_addr; flags interval;", overlapping),))
    right = pool_ranges([range_of("192.0.2.0/28")])
    await node.give({POOLS: right})
    assert set(await node.table.update({POOLS: wrong, "web": refusing("10.96.0.1")})) == {POOLS}
    assert node.table.owned(POOLS) == right
    assert node.table.owned("web") == refusing("10.96.0.1")
    assert await node.drift() is None
    node.table.expect({POOLS: wrong, "web": refusing("10.96.0.1")})
    assert set(await node.table.create()) == {POOLS}
    assert node.table.owned(POOLS) == Contents()
    assert await node.drift() is None


async def test_a_table_of_others_that_goes_while_this_one_is_read_is_no_drift(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_older_table()
    await node.table.create()
    assert await node.drift() is None
    gone = end_older_table(monkeypatch)
    assert await node.drift() is None
    assert gone


async def test_the_kernel_tells_at_which_listeners_clients_are_kept_out(node: Node) -> None:
    given_up_before = [Listener("10.96.0.4", "TCP", 80), Listener("fd00::4", "All", ALL_PORTS)]
    limited = [
        Listener("10.96.0.1", "TCP", 80),
        Listener("fd00::1", "UDP", 53),
        Listener("10.96.0.2", "All", ALL_PORTS),
    ]
    maps, refused = [SOURCE_RANGES, POLICY, SOURCE_RANGES], Listener("10.96.0.3", "TCP", 80)
    elements = [listener(map_, each, "drop") for map_, each in zip(maps, limited, strict=True)]
    others = {"other": refusing(refused.ip), "gone": layout.given_up(given_up_before)}
    await node.give({"web": Contents(frozenset(elements)), **others})
    found = await node.reader.contents(TABLE, lambda _: True)
    assert restricted(found) == {*limited, refused}
    assert given_up(found) == set(given_up_before)


def guarded(name: str, *ranges: str, rule: str = "drop") -> Contents:
    allowed = NamedSet(f"set-{name}", "type ipv4_addr; flags interval; auto-merge;", ranges)
    chain = Chain(f"policy-{name}", (f"ip saddr @set-{name} return", rule))
    element = Element(f"{NO_ENDPOINTS}-ip", "tcp . 10.96.0.9 . 80", f"goto policy-{name}")
    return Contents(frozenset({element}), (chain,), (allowed,))


async def test_owners_come_change_and_go(node: Node) -> None:
    await node.give({"a": refusing("10.96.0.1", "fd00::1"), "b": guarded("b", "10.0.0.0/8", "10.1.0.0/16")})
    await node.give({"a": refusing("10.96.0.2")})
    await node.give({"b": guarded("b", "192.168.0.0/16", "172.16.0.1")})
    await node.give({"b": guarded("b", rule="accept")})
    await node.give({"b": guarded("c")})
    await node.give({"a": Contents(), "b": Contents()})


async def test_an_element_goes_from_one_owner_to_another_in_either_order(node: Node) -> None:
    await node.give({"a": refusing("10.96.0.1")})
    await node.give({"b": refusing("10.96.0.1")})
    await node.give({"a": Contents()})
    await node.give({"a": refusing("10.96.0.1"), "b": Contents()})
    await node.give({"a": guarded("a"), "b": refusing("10.96.0.1")})


def connects(port: int, *as_user: str) -> bool:
    command = [*as_user, "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0 or "Connection refused" in done.stderr, done.stderr
    return done.returncode == 0


async def test_only_root_connects_to_the_port_of_nftlb(node: Node) -> None:
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert connects(port, *nobody)
        table = AgentTable(node.nft, nftlb_port(port))
        await table.create()
        assert await TableVerifier(table, node.reader).drift() is None
        assert not connects(port, *nobody)
        assert connects(port)


SETS = (LISTENERS, GIVEN_UP, ANSWERED_HERE, NOT_FROM_NODE, MARKED, SERVED_ADDRESSES)
"""Those without a value; all others are maps."""


def looked_up(name: str) -> Element:
    """Any element of one of the maps and sets that all farms share."""
    scope, _, family = name.rpartition("-")
    ip = "fd00::1" if family == "ip6" else "10.96.0.1"
    if scope == HAIRPIN:
        return Element(name, f"{ip} . {ip}")
    key = ip if scope.endswith("-all") or scope == SERVED_ADDRESSES else f"tcp . {ip} . 80"
    if scope in (BACKEND_SOURCES, BACKEND_MARKS):
        key += f" . {ip}"
    values = {SOURCES: ip, BACKEND_SOURCES: ip, MARKS: "0x1", BACKEND_MARKS: "0x1"}
    return Element(name, key, "" if scope.removesuffix("-all") in SETS else values.get(scope, "drop"))


async def test_the_rules_come_and_go_with_what_they_look_up(node: Node) -> None:
    owners = {f"owner-{name}": Contents(frozenset({looked_up(name)})) for name in sorted(SET_NAMES)}
    for owner, contents in owners.items():
        await node.give({owner: contents})
    for owner in owners:
        await node.give({owner: Contents()})
    await node.give(owners)
    await node.give(dict.fromkeys(owners, Contents()))


@pytest.mark.parametrize(
    "damage",
    [
        f"delete table inet {TABLE}",
        f"flush chain inet {TABLE} prerouting",
        f"flush map inet {TABLE} {NO_ENDPOINTS}-ip",
        f"flush chain inet {TABLE} policy-b",
        f"flush set inet {TABLE} set-b",
    ],
)
async def test_damage_is_seen_and_mended(node: Node, damage: str) -> None:
    owners = {"a": refusing("10.96.0.1"), "b": guarded("b", "10.0.0.0/8")}
    await node.give(owners)
    await node.nft.run(damage)
    assert (await node.drift() or "") != ""
    await node.table.create()
    assert await node.drift() is None


async def test_a_change_of_a_table_that_somebody_removed_makes_it_whole(node: Node) -> None:
    await node.give({"a": refusing("10.96.0.1")})
    await node.nft.run(f"delete table inet {TABLE}")
    await node.give({"b": refusing("10.96.0.2")})


async def test_a_farm_whose_rules_the_kernel_refuses_hurts_no_other(node: Node) -> None:
    def limited(burst: int) -> Contents:
        return Contents(chains=(Chain("over", (f"limit rate over 1/week burst {burst} packets drop",)),))

    await node.give({"a": refusing("10.96.0.1"), "odd": limited(30500), "policy:p": guarded("p")})
    refused = await node.table.update({"a": refusing("10.96.0.2"), "odd": limited(31000), "c": refusing("10.96.0.3")})
    assert list(refused) == ["odd"]
    assert "refused" in refused["odd"]
    assert await node.drift() is None
    assert node.table.owned("odd") == limited(30500), "it keeps what it had"
    assert (node.table.owned("a"), node.table.owned("c")) == (refusing("10.96.0.2"), refusing("10.96.0.3"))
    node.table.expect({"a": refusing("10.96.0.1"), "odd": limited(31000), "odder": limited(99999)})
    assert set(await node.table.create()) == {"odd", "odder"}
    assert await node.drift() is None
    assert not node.table.owned("odd")


ALL_IPV4, ALL_IPV6 = "0.0.0.0-255.255.255.255", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
GUARDED = FarmKey("shop", "web--http")
FARM_NAME = "shop.web--http"


def policies(*specs: tuple[str, str, list[str]]) -> Policies:
    """A farm that refers to these: name, type and CIDRs of each."""
    known = Policies()
    known.refer(GUARDED, References("shop", frozenset(name for name, _, _ in specs)))
    known.put_all(
        {
            PolicyKey("shop", name): policy(raw_policy(name, namespace="shop", type=kind, cidrs=cidrs))
            for name, kind, cidrs in specs
        }
    )
    return known


def listening(known: Policies, key: FarmKey = GUARDED, family: Family = "ipv4") -> dict[str, Contents]:
    """Return the rules that apply a farm's policies where it listens."""
    ip = "10.96.0.9" if family == "ipv4" else "fd00::9"
    name = node_farm_name(*key)
    listeners = [Listener(ip, "TCP", port) for port in (80, 443)]
    return {rules_owner(name): known.rules(key, name, listeners)}


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize(
    "cidrs",
    [
        [],
        ["0.0.0.0/0", "::/0"],
        ["0.0.0.0/32", "::/128"],
        ["255.255.255.255/32", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"],
        ["10.0.0.1/32", "10.0.0.2/32", "10.0.0.2/32", "fd00::1/128", "fd00::2/128"],
        ["10.0.0.0/8", "10.1.0.0/16", "9.255.255.255/32", "fd00::/8", "fd00:1::/32"],
        ["0.0.0.0/8", "192.0.2.77/24", "128.0.0.0/1", "::/64", "fd00::77/64", "8000::/1"],
    ],
)
async def test_the_kernel_has_the_ranges_of_a_policy(node: Node, family: Family, cidrs: list[str]) -> None:
    known = policies(("a-list", "deny", cidrs), ("another", "allow", []))
    rules = listening(known, family=family)
    await node.give(known.contents() | rules)
    await node.give({owner: Contents() for owner in known.contents() | rules})


async def test_ten_thousand_ranges_change_in_one_transaction(node: Node) -> None:
    def some(start: int) -> Policies:
        return policies(("large", "deny", [f"{ip_address(start + number * 512)}/24" for number in range(10_000)]))

    start = int(ip_address("10.0.0.0"))
    known = some(start)
    await node.give(known.contents() | listening(known))
    before = await node.reader.generation()
    await node.table.update(some(start + 256).contents())
    assert await node.reader.generation() == before + 1
    assert await node.drift() is None


async def test_a_policy_changes_its_type_and_goes_while_a_farm_refers_to_it(node: Node) -> None:
    list_ = PolicyKey("shop", "list")
    deny, known = policies(("list", "deny", ["10.0.0.0/8"])), policies(("list", "allow", ["10.0.0.0/8"]))
    assert listening(deny) == listening(known), "its farms do not change with it"
    await node.give(deny.contents() | listening(deny))
    await node.give(known.contents())
    known.put_all({list_: None})
    assert known.gone(node.table.is_used) == set()
    await node.give(known.contents([list_]))
    await node.give(listening(known))
    assert known.gone(node.table.is_used) == {list_}
    await node.give(known.contents([list_]))
    assert not node.table.owned("policy:shop.list")


def instead(owner: str) -> Contents:
    return admitting_nobody(PolicyKey("shop", owner.rpartition(".")[2]))


@pytest.mark.parametrize("kind", ["allow", "deny"])
@pytest.mark.parametrize("anew", [False, True])
async def test_a_policy_whose_ranges_the_kernel_refuses_admits_nobody_and_holds_no_other(
    node: Node, kind: str, *, anew: bool
) -> None:
    known = policies(("list", kind, ["10.0.0.0/8"]), ("other", kind, ["10.0.0.0/8"]))
    node.table.fallback = instead
    await node.give(known.contents() | listening(known))
    had = known.contents()["policy:shop.list"]
    overlapping = (each._replace(elements=("10.0.0.0/8", "10.1.0.0/16") if each.elements else ()) for each in had.sets)
    refused = Contents(sets=tuple(overlapping), chains=had.chains)
    changed = known.contents() | {"policy:shop.list": refused, "web": refusing("10.96.0.1")}
    if anew:
        node.table.expect(changed | listening(known))
    told = await (node.table.create() if anew else node.table.update(changed))
    assert list(told) == ["policy:shop.list"]
    assert "refused" in told["policy:shop.list"]
    assert await node.drift() is None
    assert node.table.owned("policy:shop.list") == instead("policy:shop.list")
    assert [each.elements for each in node.table.owned("policy:shop.list").sets] == [(ALL_IPV4,), (), (ALL_IPV6,), ()]
    assert node.table.owned("web") == refusing("10.96.0.1")
    assert node.table.owned("policies:shop.web--http") == listening(known)["policies:shop.web--http"]


async def test_names_of_any_length_are_names_to_nft(node: Node) -> None:
    key, name = FarmKey("n" * 63, "f" * 253), "p" * 63
    known = Policies()
    known.refer(key, References(key.namespace, frozenset({name, "0"})))
    known.put_all(
        {
            PolicyKey(key.namespace, each): policy(raw_policy(each, namespace=key.namespace, cidrs=["10.0.0.0/8"]))
            for each in (name, "0")
        }
    )
    await node.give(known.contents() | listening(known, key))


async def test_a_range_that_is_gone_is_seen(node: Node) -> None:
    known = policies(("list", "deny", ["10.0.0.0/8", "192.0.2.0/24"]))
    await node.give(known.contents())
    await node.nft.run(f"delete element inet {TABLE} denied-shop.list-ip {{ 192.0.2.0/24 }}")
    assert "denied-shop.list-ip" in (await node.drift() or "")
