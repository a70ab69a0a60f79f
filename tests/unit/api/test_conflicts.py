from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.api.conflicts import Conflict, Conflicts, FarmKey, farm_key, rank
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener, listeners_of
from tests.builders import raw_farm


def farm(
    name: str,
    *addresses: tuple[str, str],
    owned: bool = False,
    day: int = 1,
    protocol: str = "TCP",
    kind: str = "ClusterIP",
    **metadata: Any,
) -> Farm:
    raw = raw_farm(
        name,
        created=f"2026-01-{day:02}T00:00:00Z",
        owner="web" if owned else None,
        protocol=protocol,
        addresses=[{"type": kind if ip else "NodePort", "ip": ip, "ports": ports} for ip, ports in addresses],
        backends=[],
    )
    return Farm.model_validate({**raw, "metadata": {**raw["metadata"], **metadata}})


def verdicts(*farms: Farm) -> dict[str, str]:
    conflicts = Conflicts()
    for each in farms:
        conflicts.put(each)
    return {each.metadata.name: conflict.winner.name for each in farms if (conflict := conflicts.get(farm_key(each)))}


V, W = ("10.96.0.1", "80"), ("10.96.0.2", "80")


def test_farms_that_share_nothing_are_all_accepted() -> None:
    assert verdicts(farm("a", V), farm("b", W), farm("c", ("10.96.0.1", "81")), farm("d", V, protocol="UDP")) == {}


def test_a_services_farm_beats_an_older_hand_written_one() -> None:
    assert verdicts(farm("hand", V, day=1), farm("service", V, owned=True, day=2)) == {"hand": "service"}


def test_older_beats_younger_and_then_the_name_decides() -> None:
    assert verdicts(farm("a", V, day=2), farm("z", V, day=1)) == {"a": "z"}
    assert verdicts(farm("b", V), farm("a", V)) == {"b": "a"}


def test_an_assigned_address_beats_an_older_external_ip() -> None:
    squatter = farm("squatter", V, W, owned=True, day=1, kind="ExternalIP")
    assert verdicts(squatter, farm("service", W, owned=True, day=9)) == {"squatter": "service"}
    assert verdicts(squatter, farm("hand", W, day=9)) == {"hand": "squatter"}


def test_a_terminating_farm_of_a_service_wins_nothing() -> None:
    kept = farm("kept", V, owned=True, day=1, deletionTimestamp="2026-01-02T00:00:00Z", finalizers=["a/b"])
    assert verdicts(kept, farm("service", V, owned=True, day=9)) == {"kept": "service"}
    conflicts = Conflicts()
    conflicts.put(farm("kept", V, owned=True, day=1))
    conflicts.put(farm("service", V, owned=True, day=9))
    assert conflicts.put(kept) == {FarmKey("default", "service")}


def test_a_node_port_listens_on_each_known_address_of_the_node() -> None:
    node_port, other = farm("port", ("", "30080"), day=2), farm("ip", ("172.31.0.11", "30000-30100"), day=1)
    assert verdicts(node_port, other) == {}
    conflicts = Conflicts(lambda each: listeners_of(each, ["172.31.0.11", "172.31.1.11"]))
    conflicts.put(node_port)
    assert conflicts.put(other) == {FarmKey("default", "port")}
    assert conflicts.get(FarmKey("default", "port")) == (FarmKey("default", "ip"), ("172.31.0.11", "TCP", 30080))


def test_a_farm_may_list_a_node_address_with_its_own_node_port() -> None:
    conflicts = Conflicts(lambda each: listeners_of(each, ["172.31.0.11"]))
    both = farm("both", ("", "30080"), ("172.31.0.11", "30080"), day=1)
    conflicts.put(both)
    conflicts.put(farm("other", ("172.31.0.11", "30080"), day=2))
    assert conflicts.remove(FarmKey("default", "both")) == {FarmKey("default", "other")}


def test_a_farm_that_loses_one_listener_loses_all_to_third_farms() -> None:
    assert verdicts(farm("first", V, day=1), farm("second", V, W, day=2), farm("third", W, day=3)) == {
        "second": "first"
    }


def test_every_port_of_an_ip_meets_each_of_its_ports() -> None:
    every = ("10.96.0.1", "")
    assert verdicts(farm("all", every, protocol="All", day=1), farm("one", V, day=2, protocol="UDP")) == {"one": "all"}
    assert verdicts(farm("all", every, protocol="All", day=3), farm("one", V, day=2), farm("other", W, day=4)) == {
        "all": "one"
    }
    assert verdicts(farm("a", every, protocol="All", day=1), farm("b", every, protocol="All", day=2)) == {"b": "a"}


def test_a_controller_that_is_another_kind_of_service_gives_no_rank() -> None:
    other = farm("other", V, owned=True, day=1)
    reference = other.metadata.owner_references[0].model_copy(update={"api_version": "serving.knative.dev/v1"})
    metadata = other.metadata.model_copy(update={"owner_references": (reference,)})
    assert verdicts(other.model_copy(update={"metadata": metadata}), farm("service", V, owned=True, day=2)) == {
        "other": "service"
    }


def test_ranges_and_lists_of_ports_meet() -> None:
    first, second = farm("a", ("10.96.0.1", "80-90")), farm("b", ("10.96.0.1", "70,85"), day=2)
    conflicts = Conflicts()
    conflicts.put(first)
    conflicts.put(second)
    assert conflicts.get(FarmKey("default", "b")) == (FarmKey("default", "a"), ("10.96.0.1", "TCP", 85))


def test_farms_whose_verdict_changes_are_returned() -> None:
    conflicts = Conflicts()
    conflicts.put(farm("second", V, W, day=2))
    conflicts.put(farm("third", W, day=3))
    assert conflicts.put(farm("first", V, day=1)) == {FarmKey("default", "second"), FarmKey("default", "third")}
    assert conflicts.put(farm("first", V, day=1)) == set()
    assert conflicts.remove(FarmKey("default", "first")) == {FarmKey("default", "second"), FarmKey("default", "third")}


def overlap(one: Listener, other: Listener) -> bool:
    return one == other or (one.ip == other.ip and 0 in (one.port, other.port))


def naive(farms: dict[FarmKey, Farm]) -> dict[FarmKey, Conflict]:
    owners: dict[Listener, FarmKey] = {}
    lost: dict[FarmKey, Conflict] = {}
    for each in sorted(farms.values(), key=rank):
        taken = (owned for listener in listeners_of(each) for owned in owners if overlap(listener, owned))
        if listener := next(taken, None):
            lost[farm_key(each)] = Conflict(owners[listener], listener)
        else:
            owners.update(dict.fromkeys(listeners_of(each), farm_key(each)))
    return lost


ADDRESSES = st.lists(
    st.tuples(st.sampled_from(["10.96.0.1", "10.96.0.2", "10.96.0.3"]), st.sampled_from(["80", "81", "80-81"])),
    min_size=1,
    max_size=2,
    unique_by=lambda address: address[0],
)
STEPS = st.lists(
    st.one_of(
        st.builds(
            lambda name, addresses, owned, day, every, kind: farm(
                name,
                *((ip, "" if every else ports) for ip, ports in addresses),
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
    farms: dict[FarmKey, Farm] = {}
    before: dict[FarmKey, Conflict] = {}
    for step in steps:
        if isinstance(step, str):
            changed = FarmKey("default", step)
            farms.pop(changed, None)
            told = conflicts.remove(changed)
        else:
            changed = farm_key(step)
            farms[changed] = step
            told = conflicts.put(step)
        now = naive(farms)
        assert {key: conflict for key in farms if (conflict := conflicts.get(key))} == now
        assert told == {key for key in farms if key != changed and before.get(key) != now.get(key)}
        before = now
