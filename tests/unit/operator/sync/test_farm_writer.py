import contextlib
from typing import Any

import pytest
from pydantic import ValidationError

from kube_nftlb import errors
from kube_nftlb.api.base import first_message
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.kube.resources import FARMS, JsonObject, Resource
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.builder import Wanted, build
from kube_nftlb.operator.sync.diff import Apply
from kube_nftlb.operator.sync.farm_writer import FarmRefusedError, FarmWriter, Outcome, classify
from tests.builders import raw_service_farm, service
from tests.fakes.kube import FakeKube, merged


class _NoPatches(FakeKube):
    """Keeps a policy that another manager has given farms, and takes no patch."""

    def __init__(self, error: errors.KubeNftlbError) -> None:
        super().__init__()
        self.error = error

    async def apply(self, resource: Resource, body: JsonObject, **more: Any) -> JsonObject:
        return await super().apply(resource, {**body, "spec": {**body["spec"], "policies": ["other"]}}, **more)

    async def patch(self, *_: Any, **__: Any) -> Any:
        raise self.error


class _WithRules(FakeKube):
    """Rejects farms that break a rule. As of farms that it does not track, it keeps what an apply leaves out."""

    def _change(self, resource: Resource, known: JsonObject, body: JsonObject) -> JsonObject:
        try:
            FarmSpec.model_validate(merged(known, body)["spec"])
        except ValidationError as error:
            raise errors.KubeError(422, "Invalid", first_message(error)) from error
        return super()._change(resource, known, body)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(errors.KubeUnreachableError("gone"), Outcome.RETRY, id="the API server is away"),
        pytest.param(errors.KubeError(500, "InternalError", "etcd"), Outcome.RETRY, id="it is in trouble"),
        pytest.param(errors.KubeError(429, "TooManyRequests", "slow down"), Outcome.RETRY, id="it has too much to do"),
        pytest.param(errors.KubeError(401, "Unauthorized", ""), Outcome.RETRY, id="it is about to know the token"),
        pytest.param(errors.KubeError(408, "Timeout", ""), Outcome.RETRY, id="the request took too long"),
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
    with contextlib.suppress(FarmRefusedError):
        assert (await FarmWriter(kube, writer).apply(_apply(wanted)))[0] is Outcome.RETRY
    answer = kube.find(FARMS, "web--http", "default")
    assert answer is not None
    assert writer.put(FARMS, answer).farms, "the watch delivers it"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"source-addr": "192.0.2.7"}, {"mode": "dnat"}, id="a source address, which mode dnat lacks"),
        pytest.param({"new-rtlimit": "5"}, {"mode": "dsr"}, id="a limit, which mode dsr lacks"),
    ],
)
@pytest.mark.parametrize("foreign_owner", [False, True])
async def test_a_field_that_goes_does_not_keep_new_ones_from_a_farm_of_which_nothing_is_tracked(
    before: dict[str, str], after: dict[str, str], foreign_owner: bool
) -> None:
    kube, ingest = _WithRules(), Ingest(Cache())
    old, new = (build(service(annotations=options)).farms[0] for options in (before, after))
    kube.put(FARMS, raw_service_farm(**old.spec))
    assert (await FarmWriter(kube, ingest).apply(_apply(new, foreign_owner=foreign_owner)))[0] is Outcome.DONE
    farm = ingest.cache.farms.get(FarmKey("default", "web--http"))
    assert farm is not None
    assert farm.digest == new.digest


async def test_a_farm_that_breaks_a_rule_by_itself_is_refused_with_the_words_of_the_rule() -> None:
    kube = _WithRules()
    (wanted,) = build(service()).farms
    kube.put(FARMS, raw_service_farm(**wanted.spec))
    wrong = wanted._replace(spec={**wanted.spec, "schedParam": "srcip"})
    with pytest.raises(FarmRefusedError, match="schedParam requires scheduler hash"):
        await FarmWriter(kube, Ingest(Cache())).apply(_apply(wrong))


def _apply(wanted: Wanted, *, foreign_owner: bool = False) -> Apply:
    """The change of a farm that is there."""
    body = raw_service_farm(**wanted.spec)
    del body["metadata"]["resourceVersion"]
    key = FarmKey("default", body["metadata"]["name"])
    return Apply(key, body, wanted.digest, "SpecChanged", foreign_owner, wanted.port)
