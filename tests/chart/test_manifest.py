"""The plain manifest is the chart, to which an overlay adds what has no default."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import programs
from tests import documents
from tests.chart import manifest
from tests.chart.render import CHART, NAMESPACE, by_key, render

pytestmark = pytest.mark.timeout(600)

OVERLAY = CHART.parents[1] / "examples/kustomize"


def kustomized(folder: Path) -> dict[str, Any]:
    kubectl = programs.ensure("none", print)["kubectl"]
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return by_key(documents.parse_all(done.stdout))


def installed(values: dict[str, Any]) -> dict[str, Any]:
    """Return the objects that Helm installs, without what marks them as Helm's, and the hooks."""
    made = [body for body in render(values) if "helm.sh/hook" not in body["metadata"].get("annotations", {})]
    for body in made:
        # The plain ones are those of crds/, for any way to install them.
        if body["kind"] == "CustomResourceDefinition":
            del body["metadata"]["labels"]
    return by_key([manifest.without_helm(body) for body in made])


def with_sorted_environment(objects: dict[str, Any]) -> dict[str, Any]:
    """The same, with environment variables in one order, which means nothing here: none refers to one of an overlay."""
    for body in objects.values():
        for container in body.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
            container["env"] = sorted(container["env"], key=lambda each: str(each["name"]))
    return objects


def test_it_is_up_to_date() -> None:
    assert manifest.FILE.read_text() == manifest.text(), "run `python -m tests.chart.manifest`"


def test_it_is_what_helm_installs() -> None:
    plain = kustomized(manifest.FOLDER)
    namespace = plain.pop(f"Namespace {NAMESPACE}")
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}
    assert plain == installed({})


def test_the_example_of_an_overlay_is_what_helm_installs_with_these_values() -> None:
    plain = kustomized(OVERLAY)
    del plain[f"Namespace {NAMESPACE}"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    values = {
        "image": {"repository": "registry.example.com/kube-nftlb", "tag": version},
        "apiServer": {"host": "192.0.2.1", "port": 6443},
    }
    assert with_sorted_environment(plain) == with_sorted_environment(installed(values))


def test_nothing_of_it_is_helms() -> None:
    text = manifest.FILE.read_text()
    assert not re.search(r"helm\.sh/|managed-by: Helm", text)
