"""A bug report has what there is, though a request fails."""

import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster import sysdump
from kube_nftlb.commands.cluster.queries import Target
from kube_nftlb.kube.client import Listing
from kube_nftlb.kube.resources import FARMS, LEASES, NFTLB_NODES, NODES, JsonObject, Resource
from tests.builders import raw_farm, raw_nftlb_node, raw_node
from tests.fakes.kube import FakeKube


class Flaky(FakeKube):
    """Does not answer when objects of some kinds are listed."""

    def __init__(self, *unanswered: Resource) -> None:
        super().__init__()
        self._unanswered = unanswered
        self.put(NODES, raw_node())
        self.put(NFTLB_NODES, raw_nftlb_node())
        self.put(FARMS, raw_farm())

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
        if resource in self._unanswered:
            raise errors.KubeUnreachableError("timeout")
        return await super().list(resource, namespace, **options)

    async def request(self, method: str, path: str, **_: Any) -> JsonObject:
        self._answer()
        return {"gitVersion": "v1.36.3"}


async def dump(monkeypatch: pytest.MonkeyPatch, path: Path, kube: FakeKube) -> tuple[dict[str, Any], list[str]]:
    @asynccontextmanager
    async def connected(_: Target) -> AsyncIterator[FakeKube]:
        yield kube

    monkeypatch.setattr(sysdump, "connected", connected)
    _, missing = await sysdump.sysdump(Target(), sysdump.SysdumpOptions(path))
    with tarfile.open(path) as archive:
        names = [each for each in archive.getnames() if each.endswith(".json")]
        files = {each.partition("/")[2]: archive.extractfile(each) for each in names}
        return {name: json.load(file) for name, file in files.items() if file is not None}, missing


@pytest.mark.parametrize(("kind", "status"), [(LEASES, False), (FARMS, False), (None, True)])
async def test_a_request_that_fails_leaves_out_its_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: Resource | None, status: bool
) -> None:
    files, missing = await dump(monkeypatch, tmp_path / "dump.tar.gz", Flaky(*([kind] if kind else [])))
    assert [raw["metadata"]["name"] for raw in files["objects/nodes.json"]] == ["n1"]
    assert ("status.json" in files) == status
    if kind is not None:
        assert f"objects/{kind.plural}.json: timeout" in missing
        assert "status.json: timeout" in missing


async def test_an_api_server_that_answers_nothing_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kube = Flaky()
    kube.away = True
    with pytest.raises(errors.KubeUnreachableError):
        await dump(monkeypatch, tmp_path / "dump.tar.gz", kube)
    assert not (tmp_path / "dump.tar.gz").exists()
