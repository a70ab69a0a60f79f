from typing import Any

import pytest

from kube_nftlb import names
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.kube.resources import SERVICES
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import parse_farm
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.builder import Built, build
from kube_nftlb.operator.farms.naming import Contender, farm_name
from kube_nftlb.operator.farms.ports import PortKey
from kube_nftlb.operator.sync.diff import Writes, diff
from tests.builders import raw_backend, raw_farm, raw_service, raw_service_farm, service

PORT = PortKey("default", "web", "http", "ipv4")


def planned(wanted: Service | None, *farms: dict[str, Any]) -> Writes:
    records = {record.key: record for record, _ in (parse_farm(raw, None) for raw in farms)}
    built = build(wanted) if wanted is not None else Built((), ())
    own = [r for r in records.values() if r.port is not None and r.port.service == "web"]
    return diff(wanted, built, own, contenders=lambda port: [Contender(0, port)], farm_at=records.get)


def as_wanted(**fields: Any) -> dict[str, Any]:
    return raw_service_farm(**{**build(service()).farms[0].spec, **fields})


def by_hand(**fields: Any) -> dict[str, Any]:
    return raw_farm(**{**build(service()).farms[0].spec, **fields})


def writes(todo: Writes) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    return [(a.key.name, a.reason) for a in todo.applies], [(d.farm.key.name, d.reason) for d in todo.deletes]


@pytest.mark.parametrize(
    ("wanted", "farms", "expected"),
    [
        pytest.param(service(), [], ([("web--http", "Created")], []), id="a missing farm is made"),
        pytest.param(service(), [as_wanted()], ([], []), id="a farm that is as wanted is left alone"),
        pytest.param(
            service(), [as_wanted(mode="dnat")], ([("web--http", "SpecChanged")], []), id="another spec is put right"
        ),
        pytest.param(
            service(),
            [as_wanted(backendsFrom=[{"service": "web", "port": "http", "overrides": [{"pod": "a", "weight": 3}]}])],
            ([("web--http", "SpecChanged")], []),
            id="so is an override",
        ),
        pytest.param(
            service(),
            [as_wanted(backendsFrom=[{"service": "web", "port": "http"}])],
            ([], []),
            id="a default that is not written is no difference",
        ),
        pytest.param(
            service(),
            [as_wanted(backendsFrom=[], backends=[raw_backend("a", "10.244.0.1")])],
            ([("web--http", "SpecChanged")], []),
            id="backends that an earlier version wrote become a reference",
        ),
        pytest.param(
            service(), [as_wanted(owner_uid="old")], ([("web--http", "OwnerChanged")], []), id="a Service made anew"
        ),
        pytest.param(None, [as_wanted()], ([], [("web--http", "ServiceGone")]), id="no Service, no farm"),
        pytest.param(
            service(type="ExternalName"),
            [as_wanted()],
            ([], [("web--http", "ServiceNotServed")]),
            id="a Service not ours",
        ),
        pytest.param(
            service(),
            [as_wanted(), as_wanted(name="web--old", port="old")],
            ([], [("web--old", "PortGone")]),
            id="a port that went takes its farm with it",
        ),
        pytest.param(
            service(),
            [by_hand()],
            ([(names.distinct_farm_name("web--http", "web", "http", "ipv4"), "Created")], []),
            id="a hand-written farm is not overwritten",
        ),
        pytest.param(
            service(),
            [by_hand(owner="web")],
            ([("web--http", "SpecChanged")], []),
            id="a farm whose labels were taken gets them back",
        ),
    ],
)
def test_the_writes_are(wanted: Service | None, farms: list[dict[str, Any]], expected: Any) -> None:
    assert writes(planned(wanted, *farms)) == expected


def test_a_farm_is_written_with_labels_owner_and_the_existing_uid() -> None:
    (apply,) = planned(service(), as_wanted(mode="dnat")).applies
    metadata = apply.body["metadata"]
    assert metadata["uid"] == "uid-web--http"
    assert metadata["labels"][names.LABEL_SERVICE_PORT] == "http"
    assert metadata["ownerReferences"][0]["uid"] == "uid-web"
    assert "annotations" not in metadata
    record, _ = parse_farm({**apply.body, "metadata": {**metadata, "resourceVersion": "1", "uid": "x"}}, None)
    assert (record.port, record.owner_uid, record.digest) == (PORT, "uid-web", apply.digest)


def test_where_both_names_are_taken_there_is_no_farm_and_a_problem() -> None:
    second = names.distinct_farm_name("web--http", "web", "http", "ipv4")
    todo = planned(service(), by_hand(), by_hand(name=second))
    assert (todo.applies, [problem.reason for problem in todo.problems]) == ((), ["FarmNameTaken"])


SECOND = names.distinct_farm_name("web--http", "web", "http", "ipv4")
A, B = PortKey("default", "a", "b--c", "ipv4"), PortKey("default", "a--b", "c", "ipv4")
A_SECOND, B_SECOND = (names.distinct_farm_name("a--b--c", port.service, port.port, "ipv4") for port in (A, B))
BOTH = [Contender(1, A), Contender(2, B)]


@pytest.mark.parametrize(
    ("port", "owned", "taken", "expected"),
    [
        pytest.param(A, [], (), "a--b--c", id="the older Service gets the plain name"),
        pytest.param(B, [], (), B_SECOND, id="the younger gets a suffix"),
        pytest.param(B, ["a--b--c"], (), "a--b--c", id="who has the plain name keeps it"),
        pytest.param(
            A,
            [A_SECOND],
            (),
            A_SECOND,
            id="who has the other keeps that",
        ),
        pytest.param(A, [], ("a--b--c",), A_SECOND, id="a taken name is left"),
    ],
)
def test_names_that_collide(port: PortKey, owned: list[str], taken: tuple[str, ...], expected: str) -> None:
    assert farm_name(port, owned, BOTH, lambda name: name in taken) == expected


def test_the_store_knows_who_contends_for_a_name() -> None:
    cache = Cache()
    ingest = Ingest(cache)
    ingest.put(SERVICES, raw_service("a--b", ports=[{"name": "c", "port": 1}], created="2026-01-02T00:00:00Z"))
    ingest.put(SERVICES, raw_service("a", ports=[{"name": "b--c", "port": 1}]))
    assert min(cache.contenders(B)).port == A
    ingest.remove(SERVICES, raw_service("a", version=2))
    assert [contender.port for contender in cache.contenders(B)] == [B]
