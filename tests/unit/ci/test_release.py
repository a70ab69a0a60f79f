"""``make release``, and the workflow that runs it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.distribution import ROOT
from tests.unit.ci.scripts import load


@pytest.mark.parametrize("platforms", ["linux/amd64 linux/arm64", "linux/arm64 linux/amd64"])
@pytest.mark.parametrize(("machine", "last"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_the_local_tag_stays_with_the_image_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, platforms: str, machine: str, last: str
) -> None:
    release = load("release")
    built: list[str] = []

    def run(program: Any, *_: Any, **environment: str) -> bytes:
        if program == ".ci/image":
            built.append(Path(environment["ARCHIVE"]).name)
        return b""

    monkeypatch.setattr(release, "run", run)
    monkeypatch.setattr(release.platform, "machine", lambda: machine)
    monkeypatch.setenv("PLATFORMS", platforms)
    release.images("kube-nftlb", [])
    assert len(built) == 2
    assert built[-1] == f"kube-nftlb-linux-{last}.tar"


def test_the_workflow_does_what_the_makefile_has() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())["jobs"]
    commands = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    chores = {match[1] for command in commands if (match := re.fullmatch(r"(?:REGISTRY=.* )?make ([a-z-]+)", command))}
    assert chores == {"test", "release", "publish"}
    assert chores <= set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
