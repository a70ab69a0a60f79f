"""What `kubectl nftlb` says of Gateways and routes, and what a drain means for them; definitions that come later."""

import json
from pathlib import Path

import pytest

from lab.gateway import crds
from tests.builders.gateways import GATEWAY_CLASS, backend, gateway, grant, listener, route
from tests.builders.manifests import service
from tests.functional.cluster import Cluster, eventually, running
from tests.functional.commands import Kubectl
from tests.functional.features.gateway.conftest import OPERATOR, forget
from tests.functional.features.gateway.test_gateway import programmed, serving


@pytest.fixture
def kubectl(cluster: Cluster) -> Kubectl:
    return Kubectl(cluster)


def test_why_names_what_a_route_lacks_and_get_shows_what_it_serves(
    cluster: Cluster, kubectl: Kubectl, namespace: str, own_namespace: str
) -> None:
    serving(cluster, namespace, web=2)
    cluster.apply(
        gateway("edge", own_namespace, listener("tcp", 80)),
        route("web", own_namespace, "edge", backend("web", namespace=namespace)),
    )
    programmed(cluster, "edge", own_namespace)

    def lacks() -> bool:
        done = kubectl.run("why", "-n", own_namespace, "tcproute/web")
        return done.returncode == 1 and "RefNotPermitted: parent edge: no ReferenceGrant" in done.stdout

    eventually(lacks, "why names the missing ReferenceGrant")
    assert f"tcproute {own_namespace}/web" in kubectl.run("why").stdout
    cluster.apply(grant("edge", namespace, own_namespace, "web"))

    def healthy() -> bool:
        done = kubectl.run("why", "-n", own_namespace, "gateway/edge")
        return done.returncode == 0 and "2/2 backends ready" in done.stdout

    eventually(healthy, "the farm of the route has backends")
    shown = kubectl.json("get", "-n", namespace, "web")
    (made,) = [each for each in shown["farms"] if each["name"].startswith(f"{own_namespace}/web--edge--tcp-")]
    assert {each["name"] for nodes in made["nodes"] for each in nodes["backends"]} == set(
        cluster.pods("web", namespace)
    )
    forget(cluster, own_namespace)


def test_a_backend_that_drains_gets_no_connections_of_routes(
    cluster: Cluster, kubectl: Kubectl, namespace: str, client: str, ip: str
) -> None:
    serving(cluster, namespace, web=2)
    cluster.apply(
        gateway("edge", namespace, listener("tcp", 80), addresses=(ip,)),
        route("web", namespace, "edge", backend("web")),
    )
    programmed(cluster, "edge", namespace)
    first, second = sorted(cluster.pods("web", namespace))
    cluster.reaches(client, [first, second], ip)
    done = kubectl.run("drain", "-n", namespace, first, "--no-wait")
    assert done.returncode == 0, done.stderr
    cluster.reaches(client, [second], ip)
    kubectl.run("undrain", "-n", namespace, first)
    cluster.reaches(client, [first, second], ip)


def test_the_standard_definitions_refuse_the_routability_of_an_address(cluster: Cluster, own_namespace: str) -> None:
    inside = gateway("edge", own_namespace, listener("tcp", 80))
    inside["spec"]["addresses"] = [{"routability": "Cluster"}]
    assert 'unknown field "spec.addresses[0].routability"' in cluster.refused(inside)


@pytest.mark.long
def test_definitions_that_are_installed_later_are_noticed() -> None:
    on = {"KUBE_NFTLB_ADDRESSES": "on"}
    with running("late", nodes=1, settings={"operator": OPERATOR, "agent": on}) as cluster:
        cluster.apply(service("web", "default"))
        eventually(lambda: cluster.farm("web--http", "default") is not None, "Services are served without them")
        definitions: Path = crds.ensure(lambda _: None)
        cluster.kubectl("apply", "--server-side", "-f", str(definitions))

        def made() -> bool:
            return cluster.try_kubectl("apply", "-f", "-", stdin=json.dumps(GATEWAY_CLASS)).returncode == 0

        eventually(made, "the API server knows GatewayClasses")
        eventually(lambda: _accepted(cluster), "the class is accepted", 60)


def _accepted(cluster: Cluster) -> bool:
    return cluster.condition("gatewayclass", GATEWAY_CLASS["metadata"]["name"], "Accepted").get("status") == "True"
