"""What Gateways and routes become: farms, and statuses that say so."""

from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.operator.gateway.objects import FarmState
from tests.unit.operator.gateway.objects import GATEWAY, decided, gateway, listener, of_gateway, of_route, route, specs

OK = ("True", "Accepted")


def test_a_route_of_a_gateway_is_a_farm() -> None:
    found = decided([gateway()], [route()])
    (key,) = found.farms
    (spec,) = specs(found)
    farm = FarmSpec.model_validate(spec)
    assert key.namespace == "infra"
    assert key.name.startswith("web--public--web-")
    assert (farm.protocol, farm.mode, farm.engine, farm.masquerade) == ("TCP", "dnat", "nftables", "AsNeeded")
    assert [(each.type, each.ip, each.ports) for each in farm.addresses] == [("LoadBalancer", "192.0.2.1", "80")]
    assert [(each.service, each.port, each.weight) for each in farm.backends_from] == [("web", "http", 1)]


def test_its_farm_belongs_to_the_route_and_names_the_gateway() -> None:
    (farm,) = decided([gateway()], [route()]).farms.values()
    assert farm is not None
    (owner,) = farm.metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
        "TCPRoute",
        "web",
        "uid-infra-web",
        True,
    )
    assert farm.metadata["labels"] == {
        "app.kubernetes.io/managed-by": "kube-nftlb-operator",
        "kube-nftlb.io/family": "ipv4",
        "kube-nftlb.io/gateway": "public",
        "kube-nftlb.io/gateway-namespace": "infra",
        "kube-nftlb.io/listener": "web",
        "kube-nftlb.io/route": "web",
    }


def test_a_gateway_is_programmed_once_all_nodes_have_its_farms() -> None:
    objects = [gateway()], [route()]
    ((farm, wanted),) = decided(*objects).farms.items()
    assert wanted is not None
    digest = wanted.digest
    for state, programmed in (
        (None, ("False", "Pending")),
        (FarmState(2, 3, "", digest), ("False", "Pending")),
        (FarmState(3, 3, "its listener is that of another", digest), ("False", "Pending")),
        (FarmState(0, 0, "", digest), ("False", "Pending")),
        (FarmState(3, 3), ("False", "Pending")),
        (FarmState(3, 3, "", digest), ("True", "Programmed")),
    ):
        found = decided(*objects, farms={farm: state} if state is not None else {})
        assert of_gateway(found) == {"Accepted": OK, "Programmed": programmed}, state
        assert of_route(found) == [{"Accepted": OK, "ResolvedRefs": ("True", "ResolvedRefs")}]


def test_of_several_farms_the_one_that_most_nodes_lack_is_named() -> None:
    objects = [gateway(listener(), listener("more", 81))], [route()]
    (first, one), (second, other) = sorted(decided(*objects).farms.items())
    assert one is not None
    assert other is not None
    for counts, missing in (((2, 2), (2, 3)), ((2, 3), (2, 2)), ((3, 4), (2, 4)), ((0, 2), (1, 4))):
        states = {first: FarmState(*counts, "", one.digest), second: FarmState(*missing, "", other.digest)}
        worst = min(states.items(), key=lambda entry: entry[1].programmed - entry[1].total)
        status = decided(*objects, farms=states).gateways[GATEWAY]
        assert status is not None
        expected = f"{worst[1].programmed} of {worst[1].total} nodes have farm infra/{worst[0].name}"
        assert (status.conditions[1].status, status.conditions[1].message) == ("False", expected)


def test_nodes_that_have_an_earlier_farm_do_not_make_a_changed_gateway_programmed() -> None:
    ((key, earlier),) = decided([gateway()], [route()]).farms.items()
    assert earlier is not None
    states = {key: FarmState(3, 3, "", earlier.digest)}
    found = decided([gateway(listener(port=81))], [route()], farms=states)
    assert list(found.farms) == [key]
    assert of_gateway(found)["Programmed"] == ("False", "Pending")
    status = found.gateways[GATEWAY]
    assert status is not None
    assert status.conditions[1].message.startswith("0 of 3 nodes have farm infra/web--public--web-")
