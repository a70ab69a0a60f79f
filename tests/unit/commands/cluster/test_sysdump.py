"""A bug report has what there is, though a request fails."""

import json
import tarfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.cluster import sysdump
from kube_nftlb.commands.cluster.queries import Target
from kube_nftlb.kube.client import Listing
from kube_nftlb.kube.resources import (
    ADDRESS_POOLS,
    BGP_PEERS,
    FARMS,
    LEASES,
    NFTLB_NODES,
    NODES,
    PODS,
    POLICIES,
    JsonObject,
    Resource,
)
from tests.builders import raw_farm, raw_nftlb_node, raw_node
from tests.fakes.kube import FakeKube

TIMEOUT = errors.KubeUnreachableError("timeout")
REFUSALS = [errors.KubeError(403, "Forbidden", "not yours"), errors.KubeError(503, "ServiceUnavailable", "overloaded")]
AGENT: JsonObject = {
    "metadata": {
        "namespace": "kube-nftlb-system",
        "name": "agent-x",
        "labels": {"app.kubernetes.io/name": "kube-nftlb", "app.kubernetes.io/component": "agent"},
    },
    "spec": {"nodeName": "n1", "containers": [{"name": "agent"}]},
}


class Flaky(FakeKube):
    """Fails when objects of some kinds are listed."""

    def __init__(self, *unanswered: Resource, error: errors.KubeNftlbError = TIMEOUT) -> None:
        super().__init__()
        self._unanswered = unanswered
        self._error = error
        self.put(NODES, raw_node())
        self.put(NFTLB_NODES, raw_nftlb_node())
        self.put(FARMS, raw_farm())

    async def list(self, resource: Resource, namespace: str | None = None, **options: Any) -> Listing:
        if resource in self._unanswered:
            raise self._error
        return await super().list(resource, namespace, **options)

    async def request(self, method: str, path: str, **_: Any) -> JsonObject:
        self._answer()
        return {"gitVersion": "v1.36.3"}

    async def text(self, path: str, query: Mapping[str, str], timeout_s: float = 0) -> str:
        if query["previous"] == "true":
            raise errors.KubeError(400, "BadRequest", "previous terminated container not found")
        return f"log of {path}"


async def dump(monkeypatch: pytest.MonkeyPatch, path: Path, kube: FakeKube) -> tuple[dict[str, str], list[str]]:
    @asynccontextmanager
    async def connected(_: Target) -> AsyncIterator[FakeKube]:
        yield kube

    monkeypatch.setattr(sysdump, "connected", connected)
    _, missing = await sysdump.sysdump(Target(), sysdump.SysdumpOptions(path))
    with tarfile.open(path) as archive:
        files = {each.partition("/")[2]: archive.extractfile(each) for each in archive.getnames()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}, missing


@pytest.mark.parametrize(("kind", "status"), [(LEASES, False), (FARMS, False), (None, True)])
async def test_a_request_that_fails_leaves_out_its_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: Resource | None, status: bool
) -> None:
    files, missing = await dump(monkeypatch, tmp_path / "dump.tar.gz", Flaky(*([kind] if kind else [])))
    assert [raw["metadata"]["name"] for raw in json.loads(files["objects/nodes.json"])] == ["n1"]
    assert ("status.json" in files) == status
    if kind is not None:
        assert f"objects/{kind.plural}.json: timeout" in missing
        assert "status.json: timeout" in missing


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: error.status)
@pytest.mark.parametrize("kind", [NODES, NFTLB_NODES, FARMS, LEASES, PODS])
async def test_an_archive_without_what_the_api_server_refuses_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: Resource, error: errors.KubeError
) -> None:
    kube = Flaky(kind, error=error)
    kube.put(PODS, AGENT)
    files, missing = await dump(monkeypatch, tmp_path / "dump.tar.gz", kube)
    assert {f"objects/{each.plural}.json" for each in (NODES, FARMS, PODS) if each != kind} <= files.keys()
    assert f"objects/{kind.plural}.json: {error}" in missing
    assert ("status.json" in files) == (f"status.json: {error}" not in missing)
    assert all(each in files["README.txt"] for each in missing)
    # What operator and agents have logged does not depend on what else is refused.
    assert ("logs/agent-x.agent.log" in files) == (kind != PODS)
    assert any(each.startswith("logs: ") for each in missing) == (kind == PODS)
    # Nodes are asked in the agents' pods, by kubectl, which is not there. Who may not list them knows their names.
    assert any(each.startswith("nodes/n1") for each in missing) == (kind != NODES or error.status == 403)


@pytest.mark.parametrize("error", [TIMEOUT, *REFUSALS], ids=lambda error: type(error).__name__)
async def test_an_api_server_that_tells_nothing_ends_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: errors.KubeNftlbError
) -> None:
    def refuse() -> None:
        raise error

    kube = Flaky()
    monkeypatch.setattr(kube, "_answer", refuse)
    with pytest.raises(type(error), match=str(error)):
        await dump(monkeypatch, tmp_path / "dump.tar.gz", kube)
    assert not (tmp_path / "dump.tar.gz").exists()


MISSING = errors.NotFoundError(404, "", "404 page not found")


async def test_a_definition_that_is_missing_leaves_out_its_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files, missing = await dump(monkeypatch, tmp_path / "dump.tar.gz", Flaky(NFTLB_NODES, error=MISSING))
    assert {"objects/nodes.json", "objects/nftlbfarms.json"} <= files.keys()
    assert f"objects/nftlbnodes.json: {MISSING}" in missing
    assert f"status.json: {MISSING}" in missing


async def test_without_any_definition_there_is_nothing_to_dump(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = (NFTLB_NODES, FARMS, POLICIES, ADDRESS_POOLS, BGP_PEERS)
    with pytest.raises(errors.NotFoundError):
        await dump(monkeypatch, tmp_path / "dump.tar.gz", Flaky(*ours, error=MISSING))
    assert not (tmp_path / "dump.tar.gz").exists()
