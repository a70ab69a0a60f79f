from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kube_nftlb.agent.engine.nftlb.steps import plan_steps
from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.requests import PutFarm, RemoveAddress, RemoveBackends, RemoveFarm, RemoveSession, after, request
from tests.builders.nftlb import address, backend, farm


def test_what_is_as_it_should_be_is_not_touched() -> None:
    same = farm("f", backend("a", 2))
    assert plan_steps({"f": same}, {"f": same}) == []


def test_what_nftlb_shows_beyond_what_was_asked_for_is_no_difference() -> None:
    wanted = farm("f", backend("a", 2))
    shown = replace(wanted, options={**wanted.options, "log": "none"})
    assert plan_steps({"f": shown}, {"f": wanted}) == []


def test_a_new_farm_is_sent_whole() -> None:
    new = farm("f", backend("a", 2))
    assert plan_steps({}, {"f": new}) == [PutFarm(new)]


def test_a_farm_that_is_unknown_and_unwanted_needs_nothing() -> None:
    assert plan_steps({}, {"f": None}) == []


def test_one_changed_backend_costs_that_backend_alone() -> None:
    before = farm("f", backend("a", 2), backend("b", 3))
    (step,) = plan_steps({"f": before}, {"f": farm("f", backend("a", 2), backend("b", 3, port="9090"))})
    assert step == PutFarm(objects.Farm("f", {}, {}, {"b": backend("b", 3, port="9090")}))


def test_backends_are_exchanged_in_one_transaction_and_removed_after_it() -> None:
    steps = plan_steps({"f": farm("f", backend("old", 2))}, {"f": farm("f", backend("new", 3))})
    put, remove = steps
    assert isinstance(put, PutFarm)
    assert {name: b.state for name, b in put.farm.backends.items()} == {"new": "up", "old": "down"}
    assert remove == RemoveBackends("f", ("old",))


def test_an_address_is_added_before_the_old_one_goes() -> None:
    before, wanted = farm(addresses=[address("10.96.0.10")]), farm(addresses=[address("10.96.0.11")])
    steps = plan_steps({"f": before}, {"f": wanted})
    assert [type(step) for step in steps] == [PutFarm, RemoveAddress]


def test_an_address_leaves_its_farm_before_another_gets_it() -> None:
    steps = plan_steps({"f": farm("f")}, {"g": farm("g"), "f": None})
    assert steps[0] == RemoveFarm("f")
    assert isinstance(steps[1], PutFarm)


def test_a_farm_that_changes_its_protocol_is_made_anew() -> None:
    before = farm("f", backend("a", 2))
    udp = replace(address(), name="f-udp", protocol="udp")
    wanted = replace(before, addresses={udp.name: udp})
    assert plan_steps({"f": before}, {"f": wanted}) == [RemoveFarm("f"), PutFarm(wanted)]


def test_a_range_that_grows_is_not_listened_on_twice() -> None:
    before, wanted = farm(addresses=[address(ports="80-90")]), farm(addresses=[address(ports="80-91")])
    steps = plan_steps({"f": before}, {"f": wanted})
    assert [type(step) for step in steps] == [RemoveAddress, PutFarm]


_BACKENDS = st.dictionaries(
    st.sampled_from("abcd"), st.tuples(st.sampled_from(["8080", "9090"]), st.sampled_from(["up", "down"])), max_size=4
)


@st.composite
def _worlds(draw: st.DrawFn, states: bool) -> dict[str, objects.Farm]:
    """Farms that listen on different ports, as the agent makes sure of."""
    owners = draw(st.dictionaries(st.sampled_from(["80", "81", "82-83"]), st.sampled_from("fgh"), max_size=3))
    world = {}
    for name in draw(st.sets(st.sampled_from("fgh"))):
        chosen = draw(_BACKENDS)
        world[name] = objects.Farm(
            name,
            {"mode": draw(st.sampled_from(["snat", "dnat"]))},
            {a.name: a for ports, owner in owners.items() if owner == name for a in [address(ports=ports, farm=name)]},
            {
                b: backend(b, "abcd".index(b) + 2, state=state if states else "up", port=port)  # type: ignore[arg-type]  # sampled
                for b, (port, state) in chosen.items()
            },
        )
    return world


@given(_worlds(states=True), _worlds(states=False))
def test_steps_lead_from_any_state_to_any_other(
    present: dict[str, objects.Farm], wanted: dict[str, objects.Farm]
) -> None:
    now = dict(present)
    for step in plan_steps(present, {**dict.fromkeys(present), **wanted}):
        left = after(now.get(step.name), step)
        if left is None:
            del now[step.name]
        else:
            now[step.name] = left
        ports = [port for farm_ in now.values() for port in farm_.bound_ports()]
        assert len(ports) == len(set(ports)), step
    assert now == wanted


def persistent(persistence: str = "srcip", sessions: dict[str, str] | None = None, ports: str = "80") -> objects.Farm:
    listened = [address(ports=port) for port in ports.split(",")]
    return replace(
        farm("f", backend("a", 2), backend("b", 3), addresses=listened),
        options={"mode": "snat", "persistence": persistence, "persist-ttl": "60"},
        sessions=sessions or {},
    )


def test_a_session_is_added_changed_and_removed_by_itself() -> None:
    before = persistent(sessions={"10.0.0.1": "a", "10.0.0.2": "a", "10.0.0.3": "b"})
    wanted = persistent(sessions={"10.0.0.1": "b", "10.0.0.3": "b", "10.0.0.4": "a"})
    put, remove = plan_steps({"f": before}, {"f": wanted})
    assert put == PutFarm(objects.Farm("f", sessions={"10.0.0.1": "b", "10.0.0.4": "a"}))
    assert remove == RemoveSession("f", "10.0.0.2")


def test_sessions_go_before_the_persistence_that_they_are_for() -> None:
    before, wanted = persistent(sessions={"10.0.0.1": "a"}), persistent("srcport", {"4000": "a"})
    assert plan_steps({"f": before}, {"f": wanted})[0] == RemoveSession("f", "10.0.0.1")


def test_nftlb_reads_a_blank_of_a_client_for_an_underscore() -> None:
    assert request(RemoveSession("f", "10.0.0.1 . 80")).path == "/farms/f/sessions/10.0.0.1_._80"


def test_two_backends_swap_their_marks_one_after_the_other() -> None:
    before = farm("f", backend("a", 2), backend("b", 3), backend("c", 4))
    wanted = farm("f", backend("a", 3), backend("b", 2), backend("c", 4))
    steps = plan_steps({"f": before}, {"f": wanted})
    assert steps[1] == RemoveBackends("f", ("a", "b"))
    assert isinstance(steps[2], PutFarm)
    assert set(steps[2].farm.backends) == {"a", "b"}


def test_backends_go_in_one_request() -> None:
    before, wanted = farm("f", *(backend(name, mark) for mark, name in enumerate("abc", 2))), farm("f", backend("a", 2))
    removal = plan_steps({"f": before}, {"f": wanted})[-1]
    assert removal == RemoveBackends("f", ("b", "c"))
    assert request(removal).method == "POST"
    left = after(before, removal)
    assert left is not None
    assert set(left.backends) == {"a"}


def test_a_persistent_farm_with_addresses_stays_while_it_changes() -> None:
    before, wanted = persistent(ports="80,81"), persistent("srcmac", ports="80,81")
    assert RemoveFarm("f") not in plan_steps({"f": before}, {"f": wanted})


def test_a_farm_of_a_whole_address_goes_before_another_gets_a_port_of_it() -> None:
    whole = replace(address(ports=""), protocol="all")
    first, *_ = plan_steps(
        {"f": farm("f", addresses=[whole])}, {"g": farm("g", addresses=[address(farm="g")]), "f": None}
    )
    assert first == RemoveFarm("f")
