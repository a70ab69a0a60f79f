"""What Gateways and routes become: farms, and statuses that say so."""

from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.operator.gateway.objects import FarmState
from tests.unit.operator.gateway.objects import decided, gateway, of_gateway, of_route, route, specs

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
    (farm,) = decided(*objects).farms
    for state, programmed in (
        (None, ("False", "Pending")),
        (FarmState(2, 3), ("False", "Pending")),
        (FarmState(3, 3, "its listener is that of another"), ("False", "Pending")),
        (FarmState(0, 0), ("False", "Pending")),
        (FarmState(3, 3), ("True", "Programmed")),
    ):
        found = decided(*objects, farms={farm: state} if state is not None else {})
        assert of_gateway(found) == {"Accepted": OK, "Programmed": programmed}, state
        assert of_route(found) == [{"Accepted": OK, "ResolvedRefs": ("True", "ResolvedRefs")}]
