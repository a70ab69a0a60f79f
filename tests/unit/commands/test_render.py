import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kube_nftlb.api.farm import Farm
from kube_nftlb.cli import app
from kube_nftlb.commands.manifests import complete, parse
from kube_nftlb.commands.render import Rendered, farms_yaml, nftlb_document, render
from kube_nftlb.commands.ruleset import written
from tests.unit.commands.objects import BAD_FARM, BY_HAND, SHOP, THIEF


def rendered(*texts: str) -> Rendered:
    return render(complete(raw for text in texts for raw in parse(text, "file")))


def test_a_service_becomes_the_farm_that_the_operator_would_write() -> None:
    result = rendered(SHOP)
    (farm,) = yaml.safe_load_all(farms_yaml(result))
    assert farm["apiVersion"] == "kube-nftlb.io/v1alpha1"
    assert farm["metadata"] == {
        "name": "web--http",
        "namespace": "default",
        "labels": {
            "app.kubernetes.io/managed-by": "kube-nftlb-operator",
            "kube-nftlb.io/service": "web",
            "kube-nftlb.io/service-port": "http",
            "kube-nftlb.io/family": "ipv4",
            "kube-nftlb.io/traffic": "all",
        },
        "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "web", "controller": True}],
    }
    assert farm["spec"]["addresses"] == [{"type": "ClusterIP", "ip": "10.96.0.10", "ports": "80"}]
    assert farm["spec"]["scheduler"] == "weight"
    (reference,) = farm["spec"]["backendsFrom"]
    assert (reference["service"], reference["port"], reference["overrides"]) == ("web", "http", [])
    assert farm["spec"]["backends"] == []
    assert result.problems == ()


def backends(result: Rendered) -> list[tuple[str, str, int | None, int]]:
    """The name, IP, port and weight of the backends of the only accepted farm."""
    (farm,) = result.accepted
    return [(each.name, each.ip, each.port, each.weight) for each in farm.spec.backends]


def test_a_farm_is_programmed_with_the_endpoints_in_the_manifests() -> None:
    result = rendered(SHOP)
    assert backends(result) == [("web-a", "10.244.1.2", 8080, 1), ("web-b", "10.244.1.3", 8080, 1)]
    (farm,) = nftlb_document(result)["farms"]
    assert [(each["name"], each["ip-addr"], each["port"]) for each in farm["backends"]] == [
        ("web-a", "10.244.1.2", "8080"),
        ("web-b", "10.244.1.3", "8080"),
    ]


REFERRING = """
apiVersion: kube-nftlb.io/v1alpha1
kind: NftlbFarm
metadata: {name: referring}
spec: {addresses: [{ip: 10.96.0.12, ports: "80"}], backendsFrom: [{service: web, port: 8080}]}
"""


def test_a_farm_by_hand_may_refer_to_a_service() -> None:
    slices = SHOP.rpartition("---")[2]
    assert [name for name, *_ in backends(rendered(REFERRING, slices))] == ["web-a", "web-b"]
    assert backends(rendered(REFERRING)) == []
    (farm,) = yaml.safe_load_all(farms_yaml(rendered(REFERRING, slices)))
    assert farm["spec"] == yaml.safe_load(REFERRING)["spec"]


def test_an_invalid_reference_is_reported() -> None:
    result = rendered(REFERRING.replace("port: 8080", "port: 80800"))
    (problem,) = result.problems
    assert problem.startswith("NftlbFarm default/referring: Invalid: spec.backendsFrom.0.port")
    assert result.accepted == ()


def test_all_that_is_programmed_can_be_read_by_another_program() -> None:
    overriding = REFERRING.replace("8080}", "8080, overrides: [{pod: web-a, weight: 3}]}")
    for text in (SHOP, f"{SHOP}---{overriding}"):
        for farm in rendered(text).accepted:
            resolved = farm.spec.model_copy(update={"backends": ()})
            assert Farm.model_validate(written(farm)) == farm.model_copy(update={"spec": resolved})


def test_what_it_writes_is_read_again_and_gives_the_same() -> None:
    once = farms_yaml(rendered(SHOP, BY_HAND))
    again = rendered(once, SHOP)
    assert farms_yaml(again) == once
    assert again.problems == ()


def test_a_farm_by_hand_stays_as_it_is_written() -> None:
    (farm,) = yaml.safe_load_all(farms_yaml(rendered(BY_HAND)))
    assert farm["metadata"] == {"name": "by-hand", "namespace": "shop"}
    assert farm["spec"] == yaml.safe_load(BY_HAND)["spec"]


def test_a_farm_in_conflict_names_the_winner_and_has_the_rest() -> None:
    result = rendered(THIEF, SHOP)
    (problem,) = result.problems
    assert (
        problem == "NftlbFarm default/thief: AddressConflict: default/web--http has 10.96.0.10:80/TCP; "
        "the rest is served; give one of the two another address or port, or delete one"
    )
    farms = {farm["name"]: farm for farm in nftlb_document(result)["farms"]}
    ports = {name: [address["ports"] for address in farm["addresses"]] for name, farm in farms.items()}
    assert ports == {"web--http": ["80"], "thief": ["79", "81"]}
    assert {raw["metadata"]["name"] for raw in result.view.farms} == {"thief", "web--http"}


def test_an_invalid_farm_is_reported_and_not_sent_to_nftlb() -> None:
    result = rendered(BAD_FARM, BY_HAND)
    (problem,) = result.problems
    assert problem.startswith("NftlbFarm default/bad: Invalid: spec.scheduler: ")
    assert [farm["name"] for farm in nftlb_document(result)["farms"]] == ["shop.by-hand"]


def test_an_invalid_annotation_is_reported_and_the_farm_rendered() -> None:
    result = rendered(SHOP.replace(": weight", ": heaviest"))
    (problem,) = result.problems
    assert problem.startswith("Service default/web: InvalidAnnotation: ")
    assert result.view.farms[0]["spec"]["scheduler"] == "rr"


def test_annotations_of_pods_are_applied_or_reported() -> None:
    key = "service.kubernetes.io/kube-nftlb-load-balancer-"
    pod = "kind: Pod\nmetadata: {name: web-b, annotations: {%sweight: '%s'}}"
    result = rendered(SHOP, pod % (key, 7))
    assert result.view.farms[0]["spec"]["backendsFrom"][0]["overrides"] == [{"pod": "web-b", "weight": 7}]
    assert backends(result) == [("web-a", "10.244.1.2", 8080, 1), ("web-b", "10.244.1.3", 8080, 7)]
    (problem,) = rendered(SHOP, pod % (key, "heavy")).problems
    assert problem.startswith("Pod default/web-b: InvalidAnnotation: ")


@pytest.mark.parametrize("spec", ["7", "{ports: 7}", "{ports: [{port: http}]}", "{clusterIP: {a: b}}"])
def test_an_invalid_service_is_reported(spec: str) -> None:
    result = rendered(f"kind: Service\nmetadata: {{name: odd}}\nspec: {spec}")
    (problem,) = result.problems
    assert problem.startswith("Service default/odd: the API server would reject it: ")


def test_a_service_without_slices_is_noted() -> None:
    assert any(
        "no EndpointSlice or workload in the manifests" in note for note in rendered(SHOP.partition("---")[0]).notes
    )


def test_a_farm_of_a_port_that_is_gone_would_be_deleted() -> None:
    old = farms_yaml(rendered(SHOP)).replace("web--http", "web--old").replace("port: http", "port: old")
    result = rendered(old, SHOP)
    assert [raw["metadata"]["name"] for raw in result.view.farms] == ["web--http"]
    assert "NftlbFarm default/web--old would be deleted: PortGone" in result.notes


def test_two_services_that_would_give_one_name_get_two() -> None:
    one = "kind: Service\nmetadata: {name: a--b}\nspec: {clusterIP: 10.96.0.1, ports: [{name: c, port: 80}]}"
    two = "kind: Service\nmetadata: {name: a}\nspec: {clusterIP: 10.96.0.2, ports: [{name: b--c, port: 80}]}"
    names = [raw["metadata"]["name"] for raw in rendered(f"{one}\n---\n{two}").view.farms]
    assert len(set(names)) == 2
    assert names[0] == "a--b--c"


@pytest.mark.parametrize(("text", "status"), [(SHOP, 0), (SHOP + "---" + THIEF, 1)])
def test_the_exit_status_says_whether_anything_was_refused(text: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(text)
    result = CliRunner().invoke(app, ["render", "-f", str(tmp_path / "shop.yaml"), "-o", "nftlb"])
    assert result.exit_code == status
    assert json.loads(result.stdout)["farms"][-1]["name"] == "web--http"
    assert ("problem: NftlbFarm default/thief" in result.stderr) == (status == 1)


def test_manifests_come_from_standard_input_too() -> None:
    result = CliRunner().invoke(app, ["render", "-f", "-"], input=SHOP)
    assert result.exit_code == 0
    assert "name: web--http" in result.stdout
    assert "note: ignored 1 of kind Deployment" in result.stderr
