"""The programs of Kubernetes are built while others prepare the rest."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import build, versions

_CHECKOUT = Path(__file__).parents[3]


def test_it_starts_before_there_is_any_package() -> None:
    subprocess.run([sys.executable, "-S", "-c", "import lab.ahead"], cwd=_CHECKOUT, check=True)


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have a script run instead of Python."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_it_is_told_what_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, f'echo "$KUBE_NFTLB_LAB_KUBERNETES $@" >{tmp_path}/asked')
    version = versions.supported()[-1]
    with build.ahead(["kubectl", "kubelet"], version):
        pass
    assert (tmp_path / "asked").read_text() == f"{version.name} -m lab.ahead kubectl kubelet\n"
    (tmp_path / "asked").unlink()
    with build.ahead([], version):
        pass
    assert not (tmp_path / "asked").exists()


def test_it_ends_if_the_rest_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, "exec sleep 300")
    began = time.monotonic()
    with pytest.raises(ValueError, match="the rest"), build.ahead(["kubectl"], versions.newest()):
        raise ValueError("the rest")
    assert time.monotonic() - began < 60
