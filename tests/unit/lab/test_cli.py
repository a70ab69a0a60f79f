"""The commands of ``kube-nftlb lab``."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from kube_nftlb.commands.cluster.on_nodes import ByCommand
from lab import addresses, cli, demo


def test_the_demo_ends_with_how_kubectl_nftlb_reaches_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = SimpleNamespace(name="mine", bin=Path("/bin"), nodes=addresses.plan_nodes(2, None))
    monkeypatch.setattr(cli, "Lab", lambda _: lab)
    monkeypatch.setattr(demo, "Demo", lambda *_: SimpleNamespace(run=lambda: None))
    result = CliRunner().invoke(cli.app, ["demo"])
    assert result.exit_code == 0
    (template,) = re.findall(r"export KUBE_NFTLB_NODE_COMMAND='(.*)'", result.stdout)
    program, *words = ByCommand(template).prefix("node-2")
    assert program.endswith("/kube-nftlb")
    assert words == ["lab", "--name", "mine", "exec", "node-2", "--"]
    assert "kubectl nftlb trace 172.31.0.11 10.96.0.1:443 --send" in result.stdout
