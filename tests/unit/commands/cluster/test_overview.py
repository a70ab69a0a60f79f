"""What commands ask for together, and what users may not see of it."""

from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster.overview import farms_and_reports, overview
from kube_nftlb.commands.cluster.queries import Target
from kube_nftlb.kube.client import Listing
from kube_nftlb.kube.resources import FARMS, NFTLB_NODES, NODES, Resource
from tests.builders import raw_farm, raw_nftlb_node, raw_node
from tests.fakes.kube import FakeKube


class Restricted(FakeKube):
    """Refuses what is in no namespace."""

    async def list(self, resource: Resource, namespace: str | None = None, **rest: Any) -> Listing:
        if resource in (NODES, NFTLB_NODES):
            raise errors.KubeError(403, "Forbidden", f"cannot list {resource.plural}")
        return await super().list(resource, namespace, **rest)


def put(kube: FakeKube) -> None:
    kube.put(FARMS, raw_farm("web"))
    kube.put(NODES, raw_node("n1"))
    kube.put(NFTLB_NODES, raw_nftlb_node("n1"))


async def test_both_have_the_farms_and_the_reports_and_one_has_the_nodes() -> None:
    kube = FakeKube()
    put(kube)
    for view, nodes in (
        (await overview(kube, Target(), None), 1),
        (await farms_and_reports(kube, Target(), None), 0),
    ):
        assert (len(view.farms), len(view.reports or ()), len(view.nodes)) == (1, 1, nodes)


async def test_status_is_refused_to_who_may_not_see_nftlbnodes_and_why_names_what_is_wrong_with_farms() -> None:
    kube = Restricted()
    put(kube)
    view = await farms_and_reports(kube, Target(), "default")
    assert ([raw["metadata"]["name"] for raw in view.farms], view.reports) == (["web"], None)
    with pytest.raises(errors.KubeError, match="cannot list nftlbnodes"):
        await overview(kube, Target(), "default")
