from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.api.budgets import farm_rank
from kube_nftlb.api.conflicts import Conflicts, FarmKey, farm_key, rank
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener, listeners_of
from tests.builders import raw_farm, raw_route_farm


def farm(
    name: str,
    *addresses: tuple[str, str],
    owned: bool = False,
    day: int = 1,
    protocol: str = "TCP",
    kind: str = "ClusterIP",
    service_day: int = 0,
    **metadata: Any,
) -> Farm:
    of_service: dict[str, Any] = (
        {"serviceCreationTimestamp": f"2026-01-{service_day:02}T00:00:00Z"} if service_day else {}
    )
    raw = raw_farm(
        name,
        created=f"2026-01-{day:02}T00:00:00Z",
        owner="web" if owned else None,
        protocol=protocol,
        addresses=[{"type": kind if ip else "NodePort", "ip": ip, "ports": ports} for ip, ports in addresses],
        backends=[],
        **of_service,
    )
    return Farm.model_validate({**raw, "metadata": {**raw["metadata"], **metadata}})


def verdicts(*farms: Farm) -> dict[str, str]:
    """The winners, by the names of the farms that lose all of their listeners."""
    conflicts = filled(*farms)
    losses = {each.metadata.name: loss for each in farms if (loss := conflicts.get(farm_key(each)))}
    return {name: loss.conflicts[0].winner.name for name, loss in losses.items() if loss.everything}


def filled(*farms: Farm) -> Conflicts:
    conflicts = Conflicts()
    for each in farms:
        conflicts.put(each)
    return conflicts


def lost(conflicts: Conflicts, name: str) -> dict[tuple[str, int], str]:
    """The addresses and ports that a farm loses, with their winners."""
    loss = conflicts.get(key(name))
    return {(each.lost.ip, each.lost.port): each.winner.name for each in loss.conflicts} if loss else {}


def key(name: str) -> FarmKey:
    return FarmKey("default", name)


V, W = ("10.96.0.1", "80"), ("10.96.0.2", "80")


def test_farms_that_share_nothing_are_all_accepted() -> None:
    assert verdicts(farm("a", V), farm("b", W), farm("c", ("10.96.0.1", "81")), farm("d", V, protocol="UDP")) == {}


def test_a_services_farm_beats_an_older_hand_written_one() -> None:
    assert verdicts(farm("hand", V, day=1), farm("service", V, owned=True, day=2)) == {"hand": "service"}


def test_older_beats_younger_and_then_the_name_decides() -> None:
    assert verdicts(farm("a", V, day=2), farm("z", V, day=1)) == {"a": "z"}
    assert verdicts(farm("b", V), farm("a", V)) == {"b": "a"}


def test_an_assigned_address_beats_an_older_external_ip() -> None:
    squatter = farm("squatter", W, owned=True, day=1, kind="ExternalIP")
    assert verdicts(squatter, farm("service", W, owned=True, day=9)) == {"squatter": "service"}
    assert verdicts(squatter, farm("hand", W, day=9)) == {"hand": "squatter"}


def test_a_farm_loses_the_listeners_that_others_have_and_serves_the_rest() -> None:
    conflicts = filled(farm("first", V, day=1), farm("second", V, W, day=2), farm("third", W, day=3))
    assert (lost(conflicts, "second"), lost(conflicts, "third")) == (
        {("10.96.0.1", 80): "first"},
        {("10.96.0.2", 80): "second"},
    )
    assert not conflicts.get(key("second")).everything  # type: ignore[union-attr]  # it has lost something
    assert conflicts.remove(key("first")) == {key("second")}
    assert lost(conflicts, "second") == {}


def test_a_services_farm_is_as_old_as_its_service() -> None:
    made_anew = farm("a", V, owned=True, day=9, service_day=1)
    assert verdicts(made_anew, farm("b", V, owned=True, day=2, service_day=2)) == {"b": "a"}
    assert verdicts(made_anew, farm("before-an-upgrade", V, owned=True, day=2)) == {"before-an-upgrade": "a"}


def test_a_farm_written_by_hand_is_as_old_as_it_is_whatever_it_says() -> None:
    assert verdicts(farm("liar", V, day=9, service_day=1), farm("honest", V, day=2)) == {"liar": "honest"}


def test_a_terminating_farm_of_a_service_wins_nothing() -> None:
    kept = farm("kept", V, owned=True, day=1, deletionTimestamp="2026-01-02T00:00:00Z", finalizers=["a/b"])
    assert verdicts(kept, farm("service", V, owned=True, day=9)) == {"kept": "service"}
    conflicts = Conflicts()
    conflicts.put(farm("kept", V, owned=True, day=1))
    conflicts.put(farm("service", V, owned=True, day=9))
    assert conflicts.put(kept) == {FarmKey("default", "service")}


HERE, THERE = "172.31.0.11", "172.31.0.12"


def on_two_nodes(*farms: Farm) -> Conflicts:
    conflicts = filled(*farms)
    conflicts.set_nodes([HERE, THERE], [HERE])
    return conflicts


def test_a_node_port_is_claimed_on_each_address_of_each_node() -> None:
    port, other = farm("port", ("", "30080"), owned=True), farm("other", (THERE, "30080"), (THERE, "80"))
    assert lost(filled(port, other), "other") == {}, "while no node is known"
    conflicts = on_two_nodes(port, other)
    assert lost(conflicts, "other") == {(THERE, 30080): "port"}
    assert conflicts.remove(key("port")) == {key("other")}
    assert lost(conflicts, "other") == {}
    assert conflicts.put(port) == {key("other")}


def test_an_older_farm_on_the_address_of_a_node_keeps_it_there_alone() -> None:
    port, other = farm("port", ("", "30080"), day=2), farm("other", (HERE, "30000-30100"), day=1)
    conflicts = on_two_nodes(port, other)
    assert lost(conflicts, "other") == {}
    assert lost(conflicts, "port") == {(HERE, 30080): "other"}
    assert conflicts.get(key("port")).everything  # type: ignore[union-attr]  # it has lost something
    conflicts.set_nodes([HERE, THERE], [HERE, "172.31.1.11"])
    assert lost(conflicts, "port") == {(HERE, 30080): "other"}
    assert not conflicts.get(key("port")).everything  # type: ignore[union-attr]  # it has lost something
    assert lost(on_two_nodes(port, farm("there", (THERE, "30080"), day=1)), "port") == {}


def test_a_new_node_is_news_for_the_farms_on_its_addresses_alone() -> None:
    conflicts = on_two_nodes(farm("port", ("", "30080"), owned=True), farm("other", ("172.31.0.13", "30080")))
    assert conflicts.set_nodes([HERE, THERE, "172.31.0.13"], [HERE]) == {key("other")}
    assert lost(conflicts, "other") == {("172.31.0.13", 30080): "port"}
    assert conflicts.set_nodes([HERE], [HERE]) == {key("other")}
    assert lost(conflicts, "other") == {}


def test_a_farm_may_list_a_node_address_with_its_own_node_port() -> None:
    conflicts = on_two_nodes(farm("both", ("", "30080"), (HERE, "30080"), day=1))
    assert lost(conflicts, "both") == {}
    conflicts.put(farm("other", (HERE, "30080"), day=2))
    assert lost(conflicts, "other") == {(HERE, 30080): "both"}
    assert conflicts.remove(key("both")) == {key("other")}


def test_every_port_of_a_node_meets_the_node_ports() -> None:
    every = farm("every", (THERE, ""), protocol="All", day=1)
    assert lost(on_two_nodes(every, farm("port", ("", "30080"), owned=True)), "every") == {(THERE, 0): "port"}
    here = farm("every", (HERE, ""), protocol="All", day=1)
    assert lost(on_two_nodes(here, farm("port", ("", "30080"), day=2)), "port") == {(HERE, 30080): "every"}


def test_every_port_of_an_ip_meets_each_of_its_ports() -> None:
    every = ("10.96.0.1", "")
    assert verdicts(farm("all", every, protocol="All", day=1), farm("one", V, day=2, protocol="UDP")) == {"one": "all"}
    assert verdicts(farm("all", every, protocol="All", day=3), farm("one", V, day=2), farm("other", W, day=4)) == {
        "all": "one"
    }
    assert verdicts(farm("a", every, protocol="All", day=1), farm("b", every, protocol="All", day=2)) == {"b": "a"}


def test_a_listener_has_the_owner_of_its_port_its_address_or_its_node_port() -> None:
    conflicts = on_two_nodes(
        farm("port", ("", "30080"), day=1),
        farm("late", (HERE, "30080-30081"), day=2),
        farm("every", ("10.96.0.7", ""), protocol="All", day=3),
    )
    owners = {
        Listener(HERE, "TCP", 30080): key("port"),
        Listener(THERE, "TCP", 30080): key("port"),
        Listener(HERE, "TCP", 30081): key("late"),
        Listener(THERE, "TCP", 30081): None,
        Listener(HERE, "UDP", 30080): None,
        Listener("10.96.0.7", "UDP", 53): key("every"),
        Listener("10.96.0.8", "TCP", 80): None,
    }
    assert {listener: conflicts.owner(listener) for listener in owners} == owners


def test_a_controller_that_is_another_kind_of_service_gives_no_rank() -> None:
    other = farm("other", V, owned=True, day=1)
    reference = other.metadata.owner_references[0].model_copy(update={"api_version": "serving.knative.dev/v1"})
    metadata = other.metadata.model_copy(update={"owner_references": (reference,)})
    assert verdicts(other.model_copy(update={"metadata": metadata}), farm("service", V, owned=True, day=2)) == {
        "other": "service"
    }


def test_ranges_and_lists_of_ports_meet() -> None:
    first, second = farm("a", ("10.96.0.1", "80-90")), farm("b", ("10.96.0.1", "70,85"), day=2)
    assert lost(filled(first, second), "b") == {("10.96.0.1", 85): "a"}


def test_farms_whose_verdict_changes_are_returned() -> None:
    conflicts = filled(farm("second", V, W, day=2), farm("third", W, day=3))
    assert conflicts.put(farm("first", V, day=1)) == {key("second")}
    assert conflicts.put(farm("first", V, day=1)) == set()
    assert conflicts.put(farm("fourth", V, W, day=4)) == set(), "who comes last changes nothing for others"
    assert conflicts.remove(key("first")) == {key("second"), key("fourth")}


NODES = {"10.96.0.3": "nodes (ipv4)"}
"""One address of the property test is a node's."""


def overlap(one: Listener, other: Listener) -> bool:
    same_address = one.ip == other.ip or NODES.get(one.ip) == other.ip or NODES.get(other.ip) == one.ip
    return same_address and ((one.protocol, one.port) == (other.protocol, other.port) or 0 in (one.port, other.port))


def naive(farms: dict[FarmKey, Farm]) -> dict[FarmKey, dict[Listener, FarmKey]]:
    """Grant each claim, the lowest first, unless it overlaps one that was granted.

    A node port is there on other nodes, whatever is granted on the address of one.
    """
    claims = sorted(
        {
            (rank(each, chosen=address.type == "ExternalIP"), listener)
            for each in farms.values()
            for address, listener in listeners_of(each)
        }
    )
    granted: list[tuple[FarmKey, Listener]] = []
    lost: dict[FarmKey, dict[Listener, FarmKey]] = {}
    for (*_, namespace, name), listener in claims:
        mine = FarmKey(namespace, name)
        against = [owner for owner, owned in granted if overlap(listener, owned)]
        if listener.ip in NODES.values():
            against = [owner for owner, owned in granted if owned.ip == listener.ip and overlap(listener, owned)]
        if against and against[0] != mine:
            lost.setdefault(mine, {})[listener] = against[0]
        else:
            granted.append((mine, listener))
    return lost


ADDRESSES = st.lists(
    st.tuples(st.sampled_from(["10.96.0.1", "10.96.0.2", "10.96.0.3", ""]), st.sampled_from(["80", "81", "80-81"])),
    min_size=1,
    max_size=2,
    unique_by=lambda address: address[0],
)


def unique(addresses: list[tuple[str, str]], every: bool) -> list[tuple[str, str]]:
    """Addresses of a farm; no farm of the test has every port of every node."""
    return addresses[:1] if every else addresses


STEPS = st.lists(
    st.one_of(
        st.builds(
            lambda name, addresses, owned, day, every, kind: farm(
                name,
                *((ip or "10.96.0.3", "") if every else (ip, ports) for ip, ports in unique(addresses, every)),
                owned=owned,
                day=day,
                protocol="All" if every else "TCP",
                kind=kind,
            ),
            st.sampled_from("abcdefg"),
            ADDRESSES,
            st.booleans(),
            st.integers(1, 3),
            st.sampled_from([False, False, True]),
            st.sampled_from(["ClusterIP", "ExternalIP"]),
        ),
        st.sampled_from("abcdefg"),
    ),
    max_size=30,
)


@given(STEPS)
def test_verdicts_are_independent_of_history_and_changes_are_returned(steps: list[Farm | str]) -> None:
    conflicts = Conflicts()
    conflicts.set_nodes(NODES)
    farms: dict[FarmKey, Farm] = {}
    before: dict[FarmKey, Any] = {}
    for step in steps:
        if isinstance(step, str):
            changed = key(step)
            farms.pop(changed, None)
            told = conflicts.remove(changed)
        else:
            changed = farm_key(step)
            farms[changed] = step
            told = conflicts.put(step)
        now = naive(farms)
        losses = {each: loss for each in farms if (loss := conflicts.get(each))}
        assert {each: {one.lost: one.winner for one in loss.conflicts} for each, loss in losses.items()} == now
        assert {each for each, loss in losses.items() if loss.everything} == {
            each for each in now if len(now[each]) == len({listener for _, listener in listeners_of(farms[each])})
        }
        assert told >= {each for each in farms if each != changed and before.get(each) != losses.get(each)}
        before = losses


def test_a_farm_of_a_route_comes_before_an_older_one_written_by_hand() -> None:
    made = Farm.model_validate(raw_route_farm("made", created="2026-02-01T00:00:00Z"))
    by_hand = farm("by-hand", ("10.96.0.10", "80"))
    assert verdicts(made, by_hand) == {"by-hand": "made"}
    assert farm_rank(raw_route_farm()) < farm_rank(raw_farm(created="2025-01-01T00:00:00Z"))
