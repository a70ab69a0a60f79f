import pytest
from typer.testing import CliRunner

from kube_nftlb import errors, names
from kube_nftlb.api.schema import annotations, reference
from kube_nftlb.cli import app
from kube_nftlb.commands.explain import explain


def test_a_field_is_explained_with_all_that_sets_it() -> None:
    text = explain("limits.new")
    assert text.startswith("farm.spec.limits.new\n")
    assert "new connections" in text
    assert "new-rtlimit" in text
    assert "service.kubernetes.io/kube-nftlb-load-balancer-new-rtlimit on the Service" in text


def test_all_fields_that_may_be_meant_are_explained() -> None:
    text = explain("est-connlimit")
    assert "farm.spec.limits.established" in text
    assert "farm.spec.backendsFrom.overrides.established" in text
    assert "on the Pod" in text


def test_no_annotation_sets_a_backend_that_is_written_by_hand() -> None:
    assert "annotation" not in explain("farm.spec.backends.established")


def test_the_reference_to_a_service_is_explained() -> None:
    text = explain("backendsFrom")
    assert "service (string)" in text
    assert "port (integer or string)" in text
    assert "at most 63 characters" in explain("backendsFrom.port")


def test_an_object_is_explained_with_its_fields_and_rules() -> None:
    text = explain("farm.spec.limits")
    assert "newBurst (integer)" in text
    assert "every backend must be of the farm's family" in explain("farm.spec")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("address-pool", [f"{names.ANNOTATION_PREFIX}address-pool", f"{names.GROUP}/address-pool"]),
        (f"{names.GROUP}/address-pool", [f"{names.GROUP}/address-pool"]),
        (f"{names.ANNOTATION_PREFIX}address-sharing-key", [f"{names.ANNOTATION_PREFIX}address-sharing-key"]),
        ("ip-families", [f"{names.GROUP}/ip-families"]),
        ("port-range", [f"{names.GROUP}/port-range.LISTENER"]),
        (f"{names.GROUP}/port-range.https", [f"{names.GROUP}/port-range.LISTENER"]),
    ],
)
def test_annotations_that_set_no_field_are_explained(asked: str, found: list[str]) -> None:
    assert [entry.splitlines()[0] for entry in explain(asked).split("\n\n")] == found


def test_a_field_is_explained_together_with_an_annotation_of_its_name() -> None:
    text = explain("ports")
    assert "farm.spec.addresses.ports\n" in text
    assert f"\n\n{names.ANNOTATION_PREFIX}ports\n" in text


def test_what_there_is_not_is_answered_with_what_is_alike() -> None:
    with pytest.raises(errors.UsageError, match=r"'schedular': did you mean scheduler"):
        explain("schedular")
    with pytest.raises(errors.UsageError, match="did you mean address-sharing-key"):
        explain("address-shareing-key")


def test_without_a_field_all_are_listed_each_in_a_line() -> None:
    result = CliRunner().invoke(app, ["explain"])
    assert result.exit_code == 0
    lines = {words[0]: words[1:] for line in result.stdout.splitlines() if (words := line.split())}
    for field in ("farm.spec.limits.new", "policy.spec.cidrs", "node.status.watermark"):
        assert field in lines
    assert lines["farm.spec.limits.newLogPrefix"][:2] == ["new-rtlimit-log-prefix", "(Service)"]
    assert lines["farm.spec.backendsFrom.overrides.established"][:2] == ["est-connlimit", "(Pod)"]
    assert len(result.stdout.splitlines()) == 1 + len(reference.rows()) + len(annotations.ANNOTATIONS)
