"""The objects whose Events the operator need not remember."""

import pytest

from kube_nftlb.kube.events import Part, Subject
from kube_nftlb.kube.resources import FARMS, NFTLB_NODES, PODS, POLICIES, SERVICES, Resource
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.model import gated_pods
from kube_nftlb.operator.model.pods import PodKey, slim
from kube_nftlb.operator.subjects import exists
from tests.builders import raw_farm, raw_gated_pod, raw_pod, raw_policy, raw_service


def raw_annotated_pod() -> dict[str, object]:
    kept = slim(raw_pod("web", annotations={"weight": "3"}))
    assert kept is not None
    return kept


@pytest.mark.parametrize(
    ("resource", "raw"),
    [
        (SERVICES, raw_service("web")),
        (FARMS, raw_farm("web")),
        (PODS, raw_annotated_pod()),
        (POLICIES, raw_policy("web")),
    ],
)
def test_an_object_exists_until_it_is_deleted_or_made_anew(resource: Resource, raw: dict[str, object]) -> None:
    cache = Cache()
    ingest = Ingest(cache)
    metadata = raw["metadata"]
    assert isinstance(metadata, dict)
    subject = Subject(resource, metadata["namespace"], metadata["name"], metadata["uid"])
    assert not exists(cache, Part(subject))
    ingest.put(resource, raw)
    assert exists(cache, Part(subject))
    assert not exists(cache, Part(subject._replace(uid="of-another")))
    assert not exists(cache, Part(subject, "no-such-farm"))


def test_the_gate_of_a_pod_exists_for_as_long_as_the_pod() -> None:
    cache = Cache()
    ingest = Ingest(cache)
    kept = gated_pods.slim(raw_gated_pod("web"))
    assert kept is not None
    part = Part(Subject(PODS, "default", "web", kept["metadata"]["uid"]), gated_pods.EVENT_PART)
    ingest.put_gated_pod(kept)
    assert exists(cache, part)
    ingest.cache.gates.remove(PodKey("default", "web"), 1000)
    assert not exists(cache, part)


def test_a_part_of_a_service_exists_for_as_long_as_its_farm() -> None:
    cache = Cache()
    ingest = Ingest(cache)
    raw = raw_service("web")
    part = Part(Subject(SERVICES, "default", "web", raw["metadata"]["uid"]), "web--http")
    ingest.put(SERVICES, raw)
    ingest.put(FARMS, raw_farm("web--http"))
    assert exists(cache, part)
    ingest.remove(FARMS, raw_farm("web--http", version=1000))
    assert not exists(cache, part)


def test_other_objects_are_not_remembered() -> None:
    assert not exists(Cache(), Part(Subject(NFTLB_NODES, "", "n1", "uid")))
