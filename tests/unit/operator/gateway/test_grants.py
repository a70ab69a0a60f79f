"""What ReferenceGrants permit, and how little one of them costs."""

from unittest import mock

import pytest

from kube_nftlb.operator.gateway import routes as routes_
from kube_nftlb.operator.gateway.backends import resolve as resolver
from kube_nftlb.operator.gateway.changes import Changes, everything
from kube_nftlb.operator.gateway.grants import ALL, Grants, Permission
from kube_nftlb.operator.gateway.objects import ObjectKey
from kube_nftlb.operator.gateway.plan import Planner
from tests.unit.operator.gateway.objects import backend, gateway, grant, parent, permits, route, service, update, world

ONE, OTHER = ObjectKey("theirs", "one"), ObjectKey("theirs", "other")


def test_a_permission_lasts_as_long_as_any_grant_that_gives_it() -> None:
    grants = Grants()
    web = Permission("theirs", "web", "TCPRoute", "infra")
    assert grants.put(ONE, grant("theirs", "infra", name="web")) == {web}
    assert grants.put(OTHER, grant("theirs", "infra", name="web")) == set()
    assert grants.put(ONE, grant("theirs", "infra", name="db")) == {web._replace(service="db")}
    assert grants.permit(*web)
    assert grants.put(OTHER, None) == {web}
    assert not grants.permit(*web)
    assert grants.put(OTHER, grant("theirs", "infra")) == {web._replace(service=ALL)}
    assert grants.permit(*web)


@pytest.mark.parametrize("name", [None, "web", "db"])
@pytest.mark.parametrize("kind", ["TCPRoute", "UDPRoute", "HTTPRoute"])
@pytest.mark.parametrize("source", ["infra", "tenant"])
def test_a_grant_permits_its_kind_of_routes_of_its_namespaces_its_services(
    name: str | None, kind: str, source: str
) -> None:
    given, grants = grant("theirs", source, kind, name), Grants()
    grants.put(ONE, given)
    assert grants.permit("theirs", "web", "TCPRoute", "infra") == permits(given, "TCPRoute", "infra", "web")
    assert not grants.permit("others", "web", "TCPRoute", "infra")


@pytest.mark.parametrize(("gateways", "source", "resolved"), [(1, "infra", 1), (1, "tenant", 0), (0, "infra", 0)])
def test_a_grant_costs_nothing_for_routes_that_do_not_need_it_or_have_no_gateway_of_ours(
    gateways: int, source: str, resolved: int
) -> None:
    routes = [
        route(backend("web", namespace="theirs"), parents=[parent()]),
        route(backend("web", namespace="theirs"), name="aside", parents=[parent(name="of-others")]),
        route(backend("web", namespace="others"), name="elsewhere", parents=[parent()]),
    ]
    objects = world([gateway()] * gateways, routes, [service("web", "theirs")])
    planner = Planner(objects)
    update(planner, everything(objects))
    objects.grants[ONE] = grant("theirs", source)  # type: ignore[index]
    with mock.patch.object(routes_, "resolve", wraps=resolver) as resolve:
        update(planner, Changes(grants=frozenset([ONE])))
    assert resolve.call_count == resolved
