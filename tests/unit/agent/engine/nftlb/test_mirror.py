"""Changes that nftlb takes long over, or does not answer at all."""

import pytest

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftlb.sessions import Remembered
from kube_nftlb.nftlb.client import SILENT_AFTER_S
from kube_nftlb.nftlb.requests import Request
from tests.builders import farm, raw_backend
from tests.unit.agent.engine.nftlb.conftest import Node

BACKENDS = [raw_backend(f"pod-{number}", f"10.244.1.{number}") for number in range(1, 201)]


class Silence:
    """An nftlb that answers no change, and the sessions that are restored meanwhile and later."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self._client = node.engine._client  # noqa: SLF001 - what it is told
        self.patience_s: list[float] = []
        self.restored: list[str] = []
        monkeypatch.setattr(self._client, "change", self._change)
        monkeypatch.setattr(node.engine.mirror.sessions, "remembered", self._remembered)
        monkeypatch.setattr(node.engine.mirror.sessions, "restore", self._restore)

    async def _change(self, _: Request) -> None:
        self.patience_s.append(self._client.patience_s)
        raise errors.NftlbHangsError("no answer")

    async def _remembered(self, name: str) -> Remembered:
        return Remembered(name, [])

    async def _restore(self, name: str, remembered: Remembered) -> None:
        assert remembered.persistence == name
        self.restored.append(name)


async def serve(node: Node) -> None:
    other = farm("other--http", addresses=[{"ip": "10.96.0.11", "ports": "80"}])
    await node.program([farm(backends=BACKENDS), other], 20)
    await node.passes(3)


async def test_nftlb_may_take_longer_the_more_backends_it_rewrites(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await serve(node)
    silence = Silence(node, monkeypatch)
    with pytest.raises(errors.NftlbHangsError):
        await node.engine.mirror.rebuild()
    with pytest.raises(errors.NftlbHangsError):
        await node.engine.mirror.reload("other--http")
    everything, other = silence.patience_s
    assert everything >= SILENT_AFTER_S + 1
    assert SILENT_AFTER_S < other < everything - 0.5


async def test_sessions_are_restored_once_an_nftlb_that_hung_over_a_change_is_read(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serve(node)
    silence = Silence(node, monkeypatch)
    with pytest.raises(errors.NftlbHangsError):
        await node.engine.mirror.rebuild()
    assert not silence.restored
    await node.engine.load()
    assert sorted(silence.restored) == ["other--http", "web--http"]
    await node.engine.load()
    assert len(silence.restored) == 2, "once"


async def test_sessions_of_an_nftlb_that_was_restarted_meanwhile_are_not_restored(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serve(node)
    silence = Silence(node, monkeypatch)
    with pytest.raises(errors.NftlbHangsError):
        await node.engine.mirror.rebuild()
    node.nftlb.end()
    await node.engine.load()
    assert not silence.restored
