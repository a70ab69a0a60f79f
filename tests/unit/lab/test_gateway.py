import json
import re
import zipfile
from pathlib import Path

import pytest

from kube_nftlb import errors
from lab import readiness
from lab.gateway import crds

GATEWAYS = "gateway.networking.k8s.io_gateways.yaml"


@pytest.mark.parametrize(("folder", "version"), [(".", crds.version()), ("experimental", crds.experimental_version())])
def test_the_version_of_the_gateway_api_is_pinned_by_its_sum(folder: str, version: str) -> None:
    pinned = (Path(crds.__file__).parent / folder / "go.sum").read_text()
    assert re.search(rf"^sigs.k8s.io/gateway-api {re.escape(version)} h1:", pinned, re.MULTILINE)


def test_crds_that_were_fetched_are_not_fetched_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    there = tmp_path / "kube-nftlb/gateway-api" / crds.version()
    there.mkdir(parents=True)
    (there / "gateway.networking.k8s.io_gateways.yaml").write_text("metadata: {name: gateways}\n---\n")

    def fail(*_: object) -> Path:
        raise errors.LabError("no Go is needed")

    monkeypatch.setattr("lab.go.find", fail)
    found = crds.ensure(lambda _: None)
    assert readiness.read_crds(found) == [{"metadata": {"name": "gateways"}}]


def fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **answer: str) -> Path:
    """What is made of the experimental channel if Go answers this about the module."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    standard = tmp_path / "kube-nftlb/gateway-api" / crds.version()
    standard.mkdir(parents=True)
    for name in (GATEWAYS, "gateway.networking.k8s.io_tcproutes.yaml"):
        (standard / name).write_text("metadata: {name: standard}")
    monkeypatch.setattr("lab.go.find", lambda *_: Path("go"))
    monkeypatch.setattr("lab.go.compile._run", lambda *_, **__: json.dumps(answer))
    return crds.ensure_experimental(lambda _: None)


def test_of_the_experimental_channel_gateways_alone_are_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive = tmp_path / "module.zip"
    version = crds.experimental_version()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr(
            f"sigs.k8s.io/gateway-api@{version}/config/crd/experimental/{GATEWAYS}", "metadata: {name: experimental}"
        )
    pinned = (Path(crds.__file__).parent / "experimental/go.sum").read_text()
    (total,) = re.findall(rf" {re.escape(version)} (h1:\S+)", pinned)
    # A Go that is older than the module asks for answers so, and fails.
    found = fetched(monkeypatch, tmp_path, Zip=str(archive), Sum=total, Error="requires go >= 1.27.0")
    names = sorted(body["metadata"]["name"] for body in readiness.read_crds(found))
    assert names == ["experimental", "standard"]


def test_a_module_that_is_not_the_pinned_one_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(errors.LabError, match=r"it is not what go\.sum pins"):
        fetched(monkeypatch, tmp_path, Zip="module.zip", Sum="h1:another")
