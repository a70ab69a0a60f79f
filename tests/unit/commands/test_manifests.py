import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.example_endpoints import examples
from kube_nftlb.commands.manifests import complete, parse, read
from tests.unit.commands.objects import SHOP

SERVICE: dict[str, Any] = {"kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}


def test_documents_and_lists_are_taken_apart() -> None:
    assert [raw["kind"] for raw in parse(SHOP, "shop.yaml")] == ["Service", "Deployment", "EndpointSlice"]


def test_a_list_of_one_kind_names_it_once() -> None:
    listed = json.dumps({"kind": "ServiceList", "items": [{"metadata": {"name": "web"}, "spec": {}}]})
    assert [raw["kind"] for raw in parse(listed, "-")] == ["Service"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "neither YAML nor JSON"),
        ("just text", "object without kind"),
        ("- 1", "object without kind"),
        ("kind: Service", "Service without metadata.name"),
        ("kind: List\nitems: [7]", "object without kind: 7"),
        ("kind: Service\nmetadata: {name: !!python/object:os.system x}", "neither YAML nor JSON"),
    ],
)
def test_invalid_manifests_are_reported_with_the_file(text: str, words: str) -> None:
    with pytest.raises(errors.UsageError, match=rf"^wrong.yaml: {words}"):
        parse(text, "wrong.yaml")


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=r"cannot read .*nowhere\.yaml"):
        read([tmp_path / "nowhere.yaml"])


def test_kinds_that_are_not_read_are_counted() -> None:
    found = complete([{"kind": "Deployment", "metadata": {}}, {"kind": "Deployment", "metadata": {}}, SERVICE])
    assert [raw["kind"] for _, raw in found.objects] == ["Service"]
    assert "ignored 2 of kind Deployment" in found.notes


def test_what_the_api_server_would_fill_in_is_filled_in() -> None:
    ((_, raw),) = complete([SERVICE]).objects
    metadata = raw["metadata"]
    assert (metadata["namespace"], metadata["resourceVersion"], metadata["generation"]) == ("default", "1", 1)
    assert metadata["uid"]


@pytest.mark.parametrize(
    ("spec", "ips"),
    [
        ({}, ["192.0.2.1"]),
        ({"ipFamilies": ["IPv6"]}, ["2001:db8::1"]),
        ({"ipFamilies": ["IPv6"], "ipFamilyPolicy": "RequireDualStack"}, ["2001:db8::1", "192.0.2.1"]),
        ({"clusterIP": "None"}, None),
        ({"type": "ExternalName"}, None),
        ({"clusterIP": "10.96.0.1"}, None),
    ],
)
def test_a_service_without_an_address_gets_one_for_documentation(
    spec: dict[str, object], ips: list[str] | None
) -> None:
    found = complete([{**SERVICE, "spec": {**SERVICE["spec"], **spec}}])
    assert found.objects[0][1]["spec"].get("clusterIPs") == ips
    assert any("has no address" in note for note in found.notes) == bool(ips)


def test_those_addresses_are_not_ones_that_the_manifests_have() -> None:
    taken = {"kind": "Service", "metadata": {"name": "old"}, "spec": {"clusterIP": "192.0.2.1"}}
    many = [{**SERVICE, "metadata": {"name": f"web-{number}"}} for number in range(300)]
    found = complete([taken, *many])
    ips = [raw["spec"]["clusterIP"] for _, raw in found.objects]
    assert len(set(ips)) == 301


def test_too_many_services_without_addresses_are_reported() -> None:
    many = [{**SERVICE, "metadata": {"name": f"web-{number}"}} for number in range(800)]
    with pytest.raises(errors.UsageError, match="762"):
        complete(many)


class Counting(list[dict[str, Any]]):
    """A list that counts how often all of it is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.looks += 1
        return super().__iter__()


def test_many_services_do_not_each_look_at_all_objects() -> None:
    selecting = {**SERVICE, "spec": {**SERVICE["spec"], "selector": {"app": "web"}}}
    one, many = Counting([selecting]), Counting([selecting] * 50)
    for raws in (one, many):
        examples(raws)
    assert many.looks == one.looks
