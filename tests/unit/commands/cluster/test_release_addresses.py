"""Addresses of pools are taken from Services at the end of an installation, until nobody assigns any."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from kube_nftlb import errors, names
from kube_nftlb.announce.ownership import records
from kube_nftlb.commands.cluster import release_addresses
from kube_nftlb.commands.cluster.queries import OPERATOR_LEASE, Target
from kube_nftlb.kube import timestamps
from kube_nftlb.kube.resources import LEASES, SERVICES, JsonObject, Resource
from tests.builders import raw_service
from tests.fakes.kube import FakeKube

VIP = "192.0.2.10"
ASSIGNED = {"type": names.ADDRESS_CONDITION, "status": "True", "reason": "Assigned"}


class AssigningKube(FakeKube):
    """An API server that an operator goes on writing to, so many times."""

    def __init__(self, again: int) -> None:
        super().__init__()
        self._again = again

    async def apply(
        self, resource: Resource, body: JsonObject, *, field_manager: str, subresource: str | None = None
    ) -> JsonObject:
        assert (field_manager, subresource) == (names.FIELD_MANAGER_ADDRESSES, "status")
        assert "status" not in body, "what the operator wrote goes"
        done = await super().apply(resource, body, field_manager=field_manager, subresource=subresource)
        self._again -= 1
        self.put(SERVICES, raw_service(status={"conditions": [ASSIGNED]} if self._again > 0 else {}))
        return done


def cluster(monkeypatch: pytest.MonkeyPatch, again: int) -> AssigningKube:
    kube = AssigningKube(again)

    @asynccontextmanager
    async def connected(_: Target) -> AsyncIterator[FakeKube]:
        yield kube

    monkeypatch.setattr(release_addresses, "connected", connected)
    monkeypatch.setattr(release_addresses, "_LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(release_addresses, "_RENEWED_WITHIN_S", 0.05)
    kube.put(SERVICES, raw_service(status={"conditions": [ASSIGNED]}))
    kube.put(SERVICES, raw_service("other", status={"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}}))
    lease = records.claimed(VIP, records.NOBODY, "n1", "02:00:00:00:00:01", datetime(2026, 1, 1, tzinfo=UTC))
    kube.put(LEASES, {**lease, "metadata": {**lease["metadata"], "namespace": "kube-nftlb-system"}})
    return kube


@pytest.mark.parametrize(("again", "wait"), [(1, False), (1, True), (3, True)])
async def test_services_and_leases_are_released_until_nobody_assigns_any(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], again: int, wait: bool
) -> None:
    kube = cluster(monkeypatch, again)
    assert await release_addresses.release(Target(), wait=wait) == 1
    service = kube.find(SERVICES, "web", "default")
    assert service is not None
    assert not service["status"].get("conditions")
    assert kube.find(LEASES, records.name(VIP), "kube-nftlb-system") is None
    assert "service default/web has no address" in capsys.readouterr().err


async def test_a_service_that_was_made_anew_meanwhile_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = cluster(monkeypatch, 1)
    kube.apply_errors.append(errors.ConflictError(409, "Conflict", "the UID does not match"))
    assert await release_addresses.release(Target(), wait=False) == 1
    assert kube.find(LEASES, records.name(VIP), "kube-nftlb-system") is None


@pytest.mark.parametrize(("ago_s", "force", "refused"), [(5, False, True), (5, True, False), (600, False, False)])
async def test_a_running_operator_keeps_its_addresses(
    monkeypatch: pytest.MonkeyPatch, ago_s: int, force: bool, refused: bool
) -> None:
    kube = cluster(monkeypatch, 1)
    renewed = timestamps.micros(datetime.now(UTC) - timedelta(seconds=ago_s))
    metadata = {"name": OPERATOR_LEASE, "namespace": "kube-nftlb-system"}
    kube.put(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "x", "renewTime": renewed}})
    if refused:
        with pytest.raises(errors.UsageError, match="an operator runs in the namespace kube-nftlb-system"):
            await release_addresses.release(Target(), wait=False)
        assert kube.writes == []
    else:
        assert await release_addresses.release(Target(), wait=False, force=force) == 1


async def test_a_clock_that_is_ahead_of_the_operators_takes_no_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    kube = cluster(monkeypatch, 1)

    def renew() -> None:
        renewed = timestamps.micros(datetime.now(UTC) - timedelta(hours=1))
        metadata = {"name": OPERATOR_LEASE, "namespace": "kube-nftlb-system"}
        kube.put(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "x", "renewTime": renewed}})

    renew()
    asyncio.get_running_loop().call_later(0.01, renew)
    with pytest.raises(errors.UsageError, match="an operator runs in the namespace kube-nftlb-system"):
        await release_addresses.release(Target(), wait=False)
    assert kube.writes == []


async def test_an_operator_that_goes_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, 1000)
    with pytest.raises(errors.UnavailableError, match="an operator goes on"):
        await release_addresses.release(Target(), wait=True)
