"""The Leases of addresses over a fake API server that refuses what has another version by now, as the real one does."""

import asyncio
import contextlib

import pytest

from kube_nftlb import errors
from kube_nftlb.announce import leases as leases_module
from kube_nftlb.announce.leases import KubeLeases
from kube_nftlb.announce.ownership.address import Write
from kube_nftlb.announce.ownership.node import Writing
from kube_nftlb.announce.ownership.records import LABEL, NOBODY, Record
from kube_nftlb.kube.reflector import Handlers
from kube_nftlb.kube.resources import LEASES
from tests.fakes.kube import FakeKube

IP, MAC = "192.0.2.10", "02:00:00:00:00:01"


def claim(before: Record) -> Writing:
    return Writing(IP, Write.CLAIM, before, MAC)


async def test_of_two_nodes_that_want_an_address_one_gets_it() -> None:
    kube = FakeKube()
    one, two = KubeLeases(kube, "here", "one"), KubeLeases(kube, "here", "two")
    assert await one.read(IP) == NOBODY
    held = await one.write(claim(NOBODY))
    assert held == Record(held.version, "one", MAC)
    with pytest.raises(errors.ConflictError):
        await two.write(claim(NOBODY))
    leaves = await one.write(Writing(IP, Write.LEAVE, held, MAC))
    assert leaves.leaving
    with pytest.raises(errors.ConflictError):
        await two.write(claim(held))
    taken = await two.write(claim(leaves))
    assert taken == Record(taken.version, "two", MAC, leaving=False, transitions=1)
    with pytest.raises(errors.ConflictError):
        await one.write(Writing(IP, Write.GIVE_UP, held, MAC))
    assert await two.write(Writing(IP, Write.GIVE_UP, taken, MAC)) == await one.read(IP) == NOBODY
    assert kube.find(LEASES, "address-192-0-2-10", "here") is None


async def test_a_lease_whose_label_was_removed_has_it_again_once_its_holder_writes() -> None:
    kube = FakeKube()
    leases = KubeLeases(kube, "here", "one")
    held = await leases.write(claim(NOBODY))
    raw = kube.find(LEASES, "address-192-0-2-10", "here") or {}
    metadata = {key: value for key, value in raw["metadata"].items() if key not in ("labels", "annotations")}
    kube.put(LEASES, {**raw, "metadata": metadata})
    found = await leases.read(IP)
    assert (found.holder, held.unwatched, found.unwatched) == ("one", False, True)
    assert not (await leases.write(claim(found))).unwatched
    assert (kube.find(LEASES, "address-192-0-2-10", "here") or {})["metadata"]["labels"] == {LABEL: "true"}


async def test_a_watch_tells_what_there_is_and_what_changes() -> None:
    kube = FakeKube()
    leases, seen, listed = KubeLeases(kube, "here", "one"), dict[str, Record](), asyncio.Event()
    held = await leases.write(claim(NOBODY))
    watching = asyncio.create_task(leases.watch(seen.__setitem__, listed.set))
    async with asyncio.timeout(20):
        await listed.wait()
        assert seen == {IP: held}
        taken = await KubeLeases(kube, "here", "two").write(claim(held))
        while seen[IP] != taken:
            await asyncio.sleep(0.01)
        kube.remove(LEASES, "address-192-0-2-10", "here")
        while seen[IP] != NOBODY:
            await asyncio.sleep(0.01)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


async def test_a_lease_that_was_made_anew_is_not_lost_to_a_watch_that_lags(monkeypatch: pytest.MonkeyPatch) -> None:
    kube, seen, watches = FakeKube(), dict[str, Record](), list[Handlers]()

    async def watch(_kube: object, _resource: object, handlers: Handlers, **_: object) -> None:
        watches.append(handlers)

    monkeypatch.setattr(leases_module, "list_and_watch", watch)
    leases = KubeLeases(kube, "here", "one")
    await leases.watch(seen.__setitem__, lambda: None)
    (handlers,) = watches
    first = await leases.write(claim(NOBODY))
    raw = kube.find(LEASES, "address-192-0-2-10", "here") or {}
    handlers.put(raw)
    await leases.write(Writing(IP, Write.GIVE_UP, first, MAC))
    again = await leases.write(claim(NOBODY))
    # It tells only now of the deletion, and then of the Lease that there is.
    handlers.remove({**raw, "metadata": {**raw["metadata"], "resourceVersion": str(int(again.version) - 1)}})
    assert seen == {IP: first}
    handlers.put(kube.find(LEASES, "address-192-0-2-10", "here") or {})
    assert seen == {IP: again}


async def test_a_list_with_an_older_lease_than_is_known_ends_the_watch() -> None:
    kube = FakeKube()
    leases, listed = KubeLeases(kube, "here", "one"), asyncio.Event()
    held = await leases.write(claim(NOBODY))
    kube.bookmark(int(held.version) + 10)
    taken = await KubeLeases(kube, "here", "two").write(claim(held))
    watching = asyncio.create_task(leases.watch(lambda *_: None, listed.set))
    async with asyncio.timeout(20):
        await listed.wait()
        kube.watch_errors.append(errors.ExpiredError(410, "Expired", "too old resource version"))
        raw = kube.find(LEASES, "address-192-0-2-10", "here") or {}
        metadata = {**raw["metadata"], "resourceVersion": held.version}
        kube.put(LEASES, {**raw, "metadata": metadata})
        kube.bookmark(int(taken.version) + 1000)
        with pytest.raises(errors.RestoredError, match=f"the Lease of the address {IP} is older"):
            await watching
