"""``kube-nftlb render -o nft`` shows what the real nftlb makes, and changes nothing where it is called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kube_nftlb import errors
from kube_nftlb.commands.manifests import complete, parse
from kube_nftlb.commands.render import Rendered, render
from kube_nftlb.commands.ruleset import ruleset
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.netfilter.libnftables import Nft
from kube_nftlb.nftlb.readback import NftlbReader
from tests.unit.commands.objects import BY_HAND, SHOP

EMPTY = """
kind: Service
metadata: {name: empty}
spec: {clusterIP: 10.96.0.20, ports: [{port: 53, protocol: UDP}]}
"""


@pytest.fixture(autouse=True)
def _in_path(patched_nftlb: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a lab's folder of programs in PATH."""
    monkeypatch.setenv("PATH", f"{patched_nftlb.parent}:{os.environ['PATH']}")


def render_nft(*options: str) -> "subprocess.CompletedProcess[str]":
    command = [*options, sys.executable, "-m", "kube_nftlb", "render", "-f", "-", "-o", "nft"]
    return subprocess.run(command, input=SHOP, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("private_network")
async def test_the_rules_are_nftlb_s_and_the_agent_s_and_the_caller_s_own_stay() -> None:
    nft = Nft.open()
    await nft.run("add table inet bystander { chain c { counter; }; }")
    kernel = NftlbReader.open()
    before, generation = listed(), await kernel.generation()
    made = ruleset(render(complete(parse(f"{SHOP}---{BY_HAND}---{EMPTY}", "file"))))
    assert made.problems == ()
    assert "dnat ip to ct mark map { 0x80000002 : 10.244.1.2 . 8080, 0x80000003 : 10.244.1.3 . 8080 }" in made.text
    assert "goto nat-shop.by-hand" in made.text
    assert "udp . 10.96.0.20 . 53 : goto refuse" in made.text
    assert "bystander" not in made.text
    assert (listed(), await kernel.generation()) == (before, generation)
    kernel.close()
    await nft.run("delete table inet bystander")


@pytest.mark.usefixtures("private_network")
def test_without_the_permission_there_is_one_sentence() -> None:
    done = render_nft("setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "--")
    assert done.returncode == 3
    assert "needs a network namespace of its own" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_nftlb_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kube_nftlb.commands.ruleset._SYSTEM_PROGRAMS", "")
    with pytest.raises(errors.UnavailableError, match="nftlb is not installed"):
        ruleset(render(complete(parse(SHOP, "file"))))
    with pytest.raises(errors.UnavailableError, match="nft is not installed"):
        ruleset(Rendered(ClusterView(), (), (), ()))


@pytest.mark.usefixtures("private_network")
def test_farms_of_the_engine_nftables_need_no_nftlb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nft = shutil.which("nft", path="/usr/sbin:/sbin:/usr/bin")
    assert nft is not None
    (tmp_path / "nft").symlink_to(nft)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kube_nftlb.commands.ruleset._SYSTEM_PROGRAMS", "")
    made = ruleset(render(complete(parse(SHOP, "file")), profile="kube-proxy"))
    assert made.problems == ()
    assert "10.244.1.2 . 8080" in made.text
    assert "table ip nftlb" not in made.text


def listed() -> str:
    return subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True, check=True).stdout
