import asyncio
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb import errors
from lab import control


async def answer(request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "refuse":
        raise errors.LabError("no")
    return {"echo": request["do"]}


async def test_a_socket_path_longer_than_the_kernel_limit(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 120) / "control.sock"
    path.parent.mkdir()
    async with await control.serve(path, answer):
        assert await asyncio.to_thread(control.call, path, {"do": "it"}) == {"echo": "it"}
        with pytest.raises(errors.LabError, match="no"):
            await asyncio.to_thread(control.call, path, {"do": "refuse"})


def test_a_request_without_a_server_fails(tmp_path: Path) -> None:
    with pytest.raises(errors.LabError, match="does not answer"):
        control.call(tmp_path / "control.sock", {"do": "it"})
