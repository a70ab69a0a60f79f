"""Where programs that are measured are found."""

from pathlib import Path

import pytest

from benchmarks import tools
from lab import build, programs


def test_the_nftlb_whose_version_is_published_is_the_one_that_labs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    debians = tmp_path / "nftlb"
    debians.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tools.find("nftlb") is None
    built = build.place_of_nftlb(programs.cache_folder())
    built.parent.mkdir(parents=True)
    built.touch(mode=0o755)
    assert tools.find("nftlb") == tools.Tool(built)
