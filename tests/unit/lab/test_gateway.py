import re
from pathlib import Path

import pytest

from kube_nftlb import errors
from lab import readiness
from lab.gateway import crds


def test_the_version_of_the_gateway_api_is_pinned_by_its_sum() -> None:
    pinned = Path(crds.__file__).with_name("go.sum").read_text()
    assert re.search(rf"^sigs.k8s.io/gateway-api {re.escape(crds.version())} h1:", pinned, re.MULTILINE)


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
