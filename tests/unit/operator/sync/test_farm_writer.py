import contextlib
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.kube.resources import FARMS, JsonObject, Resource
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.builder import build
from kube_nftlb.operator.sync.diff import Apply
from kube_nftlb.operator.sync.farm_writer import FarmRefusedError, FarmWriter, Outcome, classify
from tests.builders import raw_service_farm, service
from tests.fakes.kube import FakeKube


class _NoPatches(FakeKube):
    """Keeps a policy that another manager has given farms, and takes no patch."""

    def __init__(self, error: errors.KubeNftlbError) -> None:
        super().__init__()
        self.error = error

    async def apply(self, resource: Resource, body: JsonObject, **more: Any) -> JsonObject:
        return await super().apply(resource, {**body, "spec": {**body["spec"], "policies": ["other"]}}, **more)

    async def patch(self, *_: Any, **__: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(errors.KubeUnreachableError("gone"), Outcome.RETRY, id="the API server is away"),
        pytest.param(errors.KubeError(500, "InternalError", "etcd"), Outcome.RETRY, id="it is in trouble"),
        pytest.param(errors.KubeError(429, "TooManyRequests", "slow down"), Outcome.RETRY, id="it has too much to do"),
        pytest.param(
            errors.ConflictError(409, "Conflict", "uid mismatch"), Outcome.RETRY, id="the farm became another one"
        ),
        pytest.param(errors.NotFoundError(404, "NotFound", "namespace"), Outcome.OBSOLETE, id="the namespace is gone"),
        pytest.param(
            errors.KubeError(403, "Forbidden", "namespace x because it is being terminated"),
            Outcome.OBSOLETE,
            id="it is going",
        ),
    ],
)
def test_a_failed_write_means(error: errors.KubeError | errors.KubeUnreachableError, expected: Outcome) -> None:
    assert classify(error) is expected


@pytest.mark.parametrize(
    "message",
    ["etcdserver: request is too large", "rpc error: trying to send message larger than max (2159011 vs. 2097152)"],
)
def test_a_farm_that_is_too_large_for_etcd_is_refused_and_not_retried(message: str) -> None:
    with pytest.raises(FarmRefusedError, match=r"too large|larger than max"):
        classify(errors.KubeError(500, "InternalError", message))


async def test_a_farm_of_which_nothing_is_tracked_is_otherwise_as_it_was() -> None:
    kube, ingest = FakeKube(), Ingest(Cache())
    raw = raw_service_farm()
    raw["metadata"]["managedFields"] = [{"manager": "kube-nftlb-operator"}]
    ingest.put(FARMS, kube.put(FARMS, raw))
    farm = ingest.cache.farms.get(FarmKey("default", "web--http"))
    assert farm is not None
    assert farm.is_tracked
    outcome, affected = await FarmWriter(kube, ingest).untrack(farm)
    after = ingest.cache.farms.get(farm.key)
    assert (outcome, affected.services) == (Outcome.DONE, frozenset())
    assert after == farm._replace(is_tracked=False, resource_version=farm.resource_version + 1)


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_refusal_is_told_with_the_api_servers_words(status: int) -> None:
    with pytest.raises(FarmRefusedError, match="spec is wrong"):
        classify(errors.KubeError(status, "Invalid", "spec is wrong"))


@pytest.mark.parametrize("error", [errors.KubeUnreachableError("away"), errors.KubeError(422, "Invalid", "no")])
async def test_what_the_first_half_of_a_write_makes_out_of_date_is_not_forgotten_if_the_other_fails(
    error: errors.KubeError | errors.KubeUnreachableError,
) -> None:
    kube, writer = _NoPatches(error), Ingest(Cache())
    (wanted,) = build(service()).farms
    body = raw_service_farm(**wanted.spec)
    del body["metadata"]["resourceVersion"]
    apply = Apply(FarmKey("default", body["metadata"]["name"]), wanted, body, "uid", "SpecChanged")
    with contextlib.suppress(FarmRefusedError):
        assert (await FarmWriter(kube, writer).apply(apply))[0] is Outcome.RETRY
    answer = kube.find(FARMS, body["metadata"]["name"], "default")
    assert answer is not None
    assert writer.put(FARMS, answer).farms, "the watch delivers it"
