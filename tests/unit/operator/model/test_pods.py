"""Annotations of Pods: what they ask of backends, and what a change of one affects."""

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kube_nftlb.api.backend import Backend, BackendOptions
from kube_nftlb.api.base import annotation_key
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, PODS, SERVICES
from kube_nftlb.operator.cache.affected import NOTHING, Affected
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.cache.service_changes import ServiceChanges
from kube_nftlb.operator.farms.builder import Built, Profile, build
from kube_nftlb.operator.informers.pod_informer import PodInformer
from kube_nftlb.operator.model.permissions import Permissions
from kube_nftlb.operator.model.pods import KEYS, PodKey, PodRecord, parse_pod, pod_key, slim
from tests.annotations import GENEROUS, NEEDED_BY, POD_KEYS
from tests.builders import endpoint, raw_pod, raw_service, raw_service_farm, raw_slice, service
from tests.fakes.events import RecordingEvents
from tests.fakes.kube import FakeKube
from tests.processor_time import processor_time

A = PodKey("default", "a")
WEB = ServiceKey("default", "web")
HEADLESS: dict[str, Any] = {"clusterIP": "None", "clusterIPs": ["None"]}


def pod(annotations: dict[str, str], labels: dict[str, str] | None = None, **fields: Any) -> PodRecord:
    raw = raw_pod(annotations=annotations, **fields)
    slimmed = slim({**raw, "metadata": {**raw["metadata"], "labels": labels}})
    assert slimmed is not None
    return parse_pod(slimmed)


def built(
    pods: dict[str, dict[str, str]],
    annotations: dict[str, str] | None = None,
    profile: Profile = GENEROUS,
    **spec: Any,
) -> Built:
    records = {name: pod(asked).given for name, asked in pods.items()}
    return build(service(annotations=annotations, **spec), sorted(pods), lambda name: records.get(name, ()), profile)


def test_every_field_that_the_model_marks_has_a_key_here() -> None:
    marked = {annotation_key(Backend, name) for name in Backend.model_fields} - {None}
    assert marked == POD_KEYS.keys() == set(KEYS)
    assert marked == {annotation_key(BackendOptions, name) for name in BackendOptions.model_fields}


@pytest.mark.parametrize("key", POD_KEYS)
def test_every_key_sets_the_field_of_its_own_backend(key: str) -> None:
    text, fields = POD_KEYS[key]
    found = built({"a": {key: text, **NEEDED_BY.get(key, {})}, "b": {"weight": "7"}})
    (wanted,) = found.farms
    FarmSpec.model_validate(wanted.spec)
    assert wanted.spec["backendsFrom"][0]["overrides"] == [{"pod": "a", **fields}, {"pod": "b", "weight": 7}]
    assert found.problems == ()


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"weight": "0"}, ["-weight:", "'0'", "from 1 to 100", "1 is used"]),
        ({"weight": "heavy; flush ruleset"}, ["'heavy; flush ruleset'"]),
        ({"state": "asleep"}, ["up, down, off, drain", "up is used"]),
        ({"mark": "0x1000"}, ["from 2 to 4095"]),
        ({"source-addr": "::1"}, ["'::1'"]),
        ({"scheduler": "rr"}, ["unknown", "on a Pod are: weight"]),
    ],
)
def test_what_a_pod_cannot_ask_for_is_told_and_leaves_the_default(
    annotations: dict[str, str], words: list[str]
) -> None:
    record = pod(annotations)
    (problem,) = record.problems
    assert record.given == ()
    assert all(word in problem.message for word in words), problem.message


def test_a_source_address_outside_the_allowed_ranges_is_left_out() -> None:
    profile = Profile(permissions=Permissions((ipaddress.ip_network("198.51.100.0/24"),)))
    for text, taken in (("198.51.100.7", True), ("10.244.0.9", False)):
        of_service = build(service(annotations={"source-addr": text}), profile=profile)
        assert ("sourceAddress" in of_service.farms[0].spec) == taken
        of_pod = built({"a": {"source-addr": text}}, profile=profile)
        overrides = of_pod.farms[0].spec["backendsFrom"][0]["overrides"]
        assert overrides == ([{"pod": "a", "sourceAddress": text}] if taken else [])
        for found in (of_service, of_pod):
            assert ["in none of the ranges" in problem.message for problem in found.problems] == [True] * (not taken)


def test_of_thousands_of_unknown_annotations_the_first_are_told() -> None:
    record = pod({f"unknown-{number}": "" for number in range(5000)})
    assert len(record.problems) == 3
    assert all("unknown (and 4997 more keys);" in problem.message for problem in record.problems)


def test_a_mark_belongs_to_the_first_of_two_that_ask_for_it() -> None:
    found = built({"a": {"mark": "16"}, "b": {"mark": "0x10"}})
    overrides = found.farms[0].spec["backendsFrom"][0]["overrides"]
    assert [override.get("mark") for override in overrides] == [16, None]
    assert ["a and b both ask for 16; a gets it" in problem.message for problem in found.problems] == [True]


def test_an_address_is_for_backends_of_its_family() -> None:
    given = pod({"source-addr": "fd00::9, 10.0.0.9"}).given
    farms = build(service(clusterIPs=["10.96.0.10", "fd00::10"]), ["a"], lambda _: given).farms
    overrides = [wanted.spec["backendsFrom"][0]["overrides"] for wanted in farms]
    assert [each["sourceAddress"] for (each,) in overrides] == ["10.0.0.9", "fd00::9"]


def test_a_pod_without_our_annotations_is_not_kept() -> None:
    assert slim(raw_pod()) is None
    kept = slim(raw_pod(annotations={"weight": " 3 "}))
    assert kept is not None
    assert kept["texts"] == {"weight": "3"}
    assert "managedFields" not in kept["metadata"]
    assert pod_key(kept) == A


@pytest.fixture
def cache() -> Cache:
    cache = Cache()
    ingest = Ingest(cache)
    for name in ("web", "other"):
        ingest.put(SERVICES, raw_service(name))
    ingest.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.1", "a"), endpoint("10.244.0.2", "b")))
    return cache


def test_a_pod_that_changes_affects_the_services_that_have_it(cache: Cache) -> None:
    changes = ServiceChanges(cache)
    affected = Affected(services=frozenset({WEB}))
    assert changes.put_pod(A, pod({"weight": "3"})) == affected
    assert changes.put_pod(A, pod({"weight": "3"}, version=6)) == NOTHING
    assert changes.put_pod(A, pod({"weight": "4"}, version=5)) == NOTHING
    assert changes.put_pod(A, pod({"weight": "4"}, version=7)) == affected
    assert cache.options_of_pod("default", "a")[0][1].ipv4 == 4
    assert changes.put_pod(PodKey("default", "elsewhere"), pod({"weight": "4"}, name="elsewhere")) == NOTHING
    assert changes.remove_pod(A, 8) == affected
    assert cache.options_of_pod("default", "a") == ()


def test_a_pod_that_changes_does_not_change_a_status_by_itself(cache: Cache) -> None:
    changes = ServiceChanges(cache)
    Ingest(cache).put(FARMS, raw_service_farm())
    assert changes.put_pod(A, pod({"weight": "3"})) == Affected(services=frozenset({WEB}))


def test_a_pod_is_found_in_all_slices_that_have_it_now(cache: Cache) -> None:
    ingest = Ingest(cache)
    changes = ServiceChanges(cache)
    ingest.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.1", "a"), name="x", service="other", version=2))
    other = ServiceKey("default", "other")
    assert changes.put_pod(A, pod({"weight": "3"})).services == {WEB, other}
    ingest.put(ENDPOINT_SLICES, raw_slice(endpoint("10.244.0.2", "b"), version=3))
    assert changes.put_pod(A, pod({"weight": "4"}, version=6)).services == {other}
    ingest.remove(ENDPOINT_SLICES, raw_slice(name="x", service="other", version=4))
    assert changes.put_pod(A, pod({"weight": "5"}, version=7)) == NOTHING
    assert cache.slices.pods_of(WEB) == {"b"}


def test_a_pod_affects_the_services_that_select_it_or_did_and_have_ports_to_serve() -> None:
    cache = Cache()
    changes, ingest = ServiceChanges(cache), Ingest(cache)
    for name, spec in (
        ("both", {"selector": {"app": "shop", "tier": "web"}}),
        ("tier", {"selector": {"tier": "web"}}),
        ("other", {"selector": {"app": "other", "tier": "web"}}),
        ("everything", {"selector": {}}),
        ("headless", {"selector": {"tier": "web"}, **HEADLESS}),
        ("outside", {"selector": {"tier": "web"}, "type": "ExternalName", **HEADLESS}),
    ):
        ingest.put(SERVICES, raw_service(name, **spec))
    labels = {"app": "shop", "tier": "web", "x": "y"}

    def affected(found: Affected) -> set[str]:
        return {each.name for each in found.services}

    assert affected(changes.put_pod(A, pod({"weight": "3"}, labels))) == {"both", "tier"}
    moved = {**labels, "app": "other"}
    assert affected(changes.put_pod(A, pod({"weight": "3"}, moved, version=6))) == {"both", "tier", "other"}
    ingest.put(SERVICES, raw_service("tier", version=2, selector={"app": "shop"}))
    ingest.remove(SERVICES, raw_service("both", version=2))
    assert affected(changes.put_pod(A, pod({"weight": "4"}, moved, version=7))) == {"other"}


def test_what_a_pods_change_costs_does_not_depend_on_the_services_of_its_namespace(cache: Cache) -> None:
    ingest, changes = Ingest(cache), ServiceChanges(cache)
    outside = {**HEADLESS, "type": "ExternalName", "selector": {"app": "b"}}
    for number in range(1000):
        ingest.put(SERVICES, raw_service(f"outside-{number}", **outside))
        ingest.put(SERVICES, raw_service(f"by-hand-{number}"))
        ingest.put(SERVICES, raw_service(f"other-{number}", selector={"app": f"{number}"}))
    states = [pod({"weight": str(1 + number % 2)}, {"app": "a"}, version=10 + number) for number in range(100)]
    with processor_time() as taken:
        assert {changes.put_pod(A, each) for each in states} == {Affected(services=frozenset({WEB}))}
    assert taken.seconds < 0.1, "10 ms each would hold up all others"


@contextlib.asynccontextmanager
async def watched(kube: FakeKube, cache: Cache) -> AsyncIterator[tuple[list[set[ServiceKey]], RecordingEvents]]:
    """The Services that changes affected, and the Events about Pods."""
    changes: list[set[ServiceKey]] = []
    events = RecordingEvents()
    watch = PodInformer(kube, Ingest(cache), events, lambda affected: changes.append(set(affected.services)))
    watch.start_reporting()
    task = asyncio.create_task(watch.run())
    await kube.delivered()
    assert watch.listed.is_set()
    try:
        yield changes, events
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_is_followed_from_its_annotation_to_its_end(cache: Cache) -> None:
    kube = FakeKube()
    kube.put(PODS, raw_pod(annotations={"weight": "3"}))
    kube.put(PODS, raw_pod("plain"))
    async with watched(kube, cache) as (changes, events):
        kube.put(PODS, raw_pod(annotations={"weight": "4"}, version=6))
        kube.put(PODS, raw_pod(version=7))
        kube.put(PODS, raw_pod(version=8))
        kube.put(PODS, raw_pod(annotations={"weight": "5"}, version=9))
        kube.bookmark(10)
        kube.remove(PODS, "a", "default", 11)
        await kube.delivered()
    assert changes == [{WEB}] * 5, "another Pod of this name does not get its options"
    assert (events.reports, list(cache.pods.items())) == ([], [])


async def test_a_problem_of_a_pod_is_told_when_it_comes_and_when_it_goes(cache: Cache) -> None:
    wrong = {"weight": "many"}
    kube = FakeKube()
    kube.put(PODS, raw_pod(annotations=wrong))
    async with watched(kube, cache) as (_, events):
        kube.put(PODS, raw_pod(annotations=wrong, version=6))
        kube.put(PODS, raw_pod(version=7))
        kube.put(PODS, raw_pod(annotations=wrong, version=8))
        await kube.delivered()
    told = [(subject.resource, subject.name, len(found)) for subject, found in events.reports]
    assert told == [(PODS, "a", 1), (PODS, "a", 0), (PODS, "a", 1)]


async def test_a_pod_that_a_later_list_does_not_have_is_forgotten(cache: Cache) -> None:
    ServiceChanges(cache).put_pod(A, pod({"weight": "3"}))
    kube = FakeKube()
    kube.put(PODS, raw_pod("b", version=100))
    async with watched(kube, cache) as (changes, _):
        pass
    assert (changes, list(cache.pods.items())) == ([{WEB}], [])
