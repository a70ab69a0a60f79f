"""A change of one farm does nothing to the rules of another."""

import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kube_nftlb.agent.engine.nftlb.steps import plan_steps
from kube_nftlb.api import farm as model
from tests.builders import farm, raw_backend
from tests.contract.bench import Bench, bench
from tests.contract.conftest import PORT
from tests.views import translated

IPS = {"ipv4": "10.96.0.{}", "ipv6": "fd00:96::{}"}
BACKENDS = {
    "ipv4": [raw_backend("a", "10.244.1.2"), raw_backend("b", "10.244.1.3")],
    "ipv6": [raw_backend("a", "fd00:244::2"), raw_backend("b", "fd00:244::3")],
}
CHANGES: list[dict[str, Any] | None] = [
    {"backends": []},
    {"mode": "dnat"},
    {"persistence": "srcip"},
    {"persistence": "srcip", "persistTTL": 5},
    {"scheduler": "weight"},
    {"intraConnect": False},
    {"ports": "80,81"},
    {"ports": "81"},
    {"ports": "80,81", "persistence": "srcip"},
    {"protocol": "UDP"},
    None,
]


def web(family: str, name: str = "web--http", number: int = 10, ports: str = "80", **changes: Any) -> model.Farm:
    addresses = [{"ip": IPS[family].format(number), "ports": ports}]
    return farm(name, **{"family": family, "addresses": addresses, "backends": BACKENDS[family], **changes})


@pytest.fixture
async def patched(real_nftlb: Path, run_dir: Path) -> AsyncIterator[Bench]:
    async with bench(f"http://127.0.0.1:{PORT}", real_nftlb, run_dir) as opened:
        await opened.mirror.sync()
        yield opened


async def bring(engine: Bench, wanted: model.Farm | None, name: str) -> None:
    target = translated(wanted, engine.present.get(name)) if wanted else None
    assert await engine.mirror.send_steps(plan_steps(engine.present, {name: target})) == {}
    assert [await engine.verifier.farm(each) for each in engine.present] == [None] * len(engine.present)
    assert await engine.verifier.base() is None


async def change(engine: Bench, family: str, changes: dict[str, Any] | None) -> None:
    """Change a farm, and change it back."""
    await bring(engine, web(family, **changes) if changes is not None else None, "web--http")
    await bring(engine, web(family), "web--http")


async def two_farms(engine: Bench, family: str) -> None:
    await bring(engine, web(family, "bystander", 9), "bystander")
    await bring(engine, web(family), "web--http")


@contextmanager
def monitored(folder: Path) -> Iterator[list[str]]:
    """The changes of nftables that the kernel reports during the block: a line for each."""
    told: list[str] = []
    log = folder / "monitor.log"
    with log.open("wb") as output, subprocess.Popen(["nft", "monitor"], stdout=output) as monitor:
        try:
            _until_told(log, "add table inet begun")
            yield told
            _until_told(log, "add table inet ended")
        finally:
            monitor.terminate()
    lines = log.read_text().split("add table inet ended")[0].splitlines()
    told += [line for line in lines if line and not line.startswith("#") and "table inet begun" not in line]


def _until_told(log: Path, command: str) -> None:
    """Change something else, until the monitor has told of it."""
    deadline = time.monotonic() + 10
    while command not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        subprocess.run(["nft", f"{command}; {command.replace('add', 'delete')}"], check=True)
        time.sleep(0.02)


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize("changes", CHANGES, ids=str)
async def test_a_change_of_a_farm_touches_no_other(
    patched: Bench, tmp_path: Path, family: str, changes: dict[str, Any] | None
) -> None:
    await two_farms(patched, family)
    with monitored(tmp_path) as told:
        await change(patched, family, changes)
    assert told
    # Sets and maps of a single rule have numbers for names.
    assert [line for line in told if "web--http" not in line and " __" not in line] == []
