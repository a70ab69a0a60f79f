"""A tenant's routes and Gateways, however many and whatever they say, are not felt by others."""

import time
from collections.abc import Iterator

import pytest

from kube_nftlb.operator.gateway.attached import ROUTES_MAX
from tests.builders.gateways import backend, gateway, listener, route
from tests.builders.manifests import farm, service
from tests.functional.cluster import Cluster, eventually
from tests.functional.faults import suite
from tests.functional.features.gateway.conftest import forget
from tests.functional.features.gateway.test_gateway import conditions, programmed, says, serving, status
from tests.functional.segment import POOL

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

ROUTES, GATEWAYS = suite.by_form((400, 150), (1000, 500))
"""In the short form, too, more routes than a listener may have."""
LATEST_S = 10.0
"""For a Gateway beside the routes of another tenant, on a busy machine."""
TOGETHER_S = 300.0
"""For all Gateways; the bar for 500 is 60 s on a machine with nothing else to do."""


@pytest.fixture
def tenant(cluster: Cluster, own_namespace: str) -> Iterator[str]:
    yield own_namespace
    forget(cluster, own_namespace)


def served_after(cluster: Cluster, namespace: str, client: str, name: str, ip: str) -> float:
    """Make a Gateway and a route, and return after how many seconds a client is answered."""
    began = time.monotonic()
    cluster.apply(
        gateway(name, namespace, listener("tcp", 80), addresses=(ip,)), route(name, namespace, name, backend("web"))
    )
    assert cluster.traffic(client, "until-answers", ip, 80)["answered"]
    return time.monotonic() - began


def test_many_routes_of_another_tenant_are_not_felt(
    cluster: Cluster, namespace: str, tenant: str, client: str, ip: str
) -> None:
    serving(cluster, namespace, web=2)
    cluster.apply(
        gateway("shared", namespace, listener("tcp", 80, source="All"), addresses=(ip,)),
        route("web", namespace, "shared", backend("web")),
    )
    programmed(cluster, "shared", namespace)
    cluster.reaches(client, cluster.pods("web", namespace), ip)
    alone = served_after(cluster, namespace, client, "alone", "172.31.0.190")
    cluster.apply(service("theirs", tenant))
    with cluster.hammer(client, ip) as hammered:
        for number in range(ROUTES):
            # Each also refers to a Service that nobody lets it refer to, and to a Gateway that is not there.
            wanted = (backend("theirs"), backend("web", namespace=namespace))
            made = route(f"route-{number}", tenant, "shared", *wanted, namespace=namespace)
            made["spec"]["parentRefs"].append({"name": f"none-{number}"})
            cluster.apply(made)
        beside = served_after(cluster, namespace, client, "beside", "172.31.0.191")
    print(f"alone {alone * 1000:.0f} ms, beside {ROUTES} routes {beside * 1000:.0f} ms; failed: {hammered['failures']}")
    assert not hammered["failures"]
    assert set(hammered["answers"]) == set(cluster.pods("web", namespace)), "the oldest route is theirs alone"
    assert beside < LATEST_S
    of_routes = cluster.get("farm", namespace=tenant, labelSelector="kube-nftlb.io/route")["items"]
    assert not of_routes, "no route of theirs serves"

    def attached() -> int:
        return int(status(cluster, "gateway", "shared", namespace)["listeners"][0]["attachedRoutes"])

    eventually(lambda: attached() == ROUTES_MAX + 1, "as many of a namespace are attached as may be", 120)


def test_nobody_reaches_another_tenants_services_or_addresses(
    cluster: Cluster, namespace: str, tenant: str, client: str, ip: str
) -> None:
    serving(cluster, namespace, web=2)
    cluster.apply(
        gateway("mine", namespace, listener("tcp", 80), addresses=(ip,)),
        route("web", namespace, "mine", backend("web")),
    )
    programmed(cluster, "mine", namespace)
    cluster.reaches(client, cluster.pods("web", namespace), ip)
    cluster.apply(
        gateway("theirs", tenant, listener("tcp", 80), addresses=(ip,)),
        route("web", tenant, "theirs", backend("web", namespace=namespace)),
        route("attached", tenant, "mine", backend("web"), namespace=namespace),
    )

    def address() -> tuple[str, str] | None:
        return conditions(status(cluster, "gateway", "theirs", tenant)).get("Programmed")

    eventually(lambda: address() == ("False", "AddressNotUsable"), "the address is taken")
    says(cluster, "attached", tenant, Accepted=("False", "NotAllowedByListeners"))
    by_hand = farm(
        "by-hand", tenant, addresses=[{"ip": "10.99.9.9", "ports": "80"}], backendsFrom=[_foreign(namespace)]
    )
    assert "only kube-nftlb's operator may have a farm refer to a Service of another namespace" in cluster.refused(
        by_hand
    )
    cluster.reaches(client, cluster.pods("web", namespace), ip)


def _foreign(namespace: str) -> dict[str, str]:
    return {"namespace": namespace, "service": "web", "port": "http"}


def test_many_gateways_are_programmed_together(cluster: Cluster, namespace: str) -> None:
    serving(cluster, namespace, web=2)
    six = {"kube-nftlb.io/ip-families": "ipv6", "kube-nftlb.io/address-pool": POOL["metadata"]["name"]}
    began = time.monotonic()
    for number in range(GATEWAYS):
        name = f"edge-{number}"
        cluster.apply(
            gateway(name, namespace, listener("tcp", 80), annotations=six), route(name, namespace, name, backend("web"))
        )

    def done() -> bool:
        found = cluster.get("gateway", namespace=namespace)["items"]
        return sum(conditions(each.get("status", {})).get("Programmed", ("", ""))[0] == "True" for each in found) == (
            GATEWAYS
        )

    eventually(done, f"{GATEWAYS} Gateways are programmed", TOGETHER_S)
    print(f"{GATEWAYS} Gateways with a route each: all programmed after {time.monotonic() - began:.1f} s")
