"""The plugin that krew installs."""

import hashlib
import io
import subprocess
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml

from kube_nftlb import __version__
from tools import krew

ROOT = Path(__file__).parents[3]
WHEEL = f"kube_nftlb-{__version__}-py3-none-any.whl"
URL = "https://example.com/kubectl-nftlb.tar.gz"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    (tmp_path / WHEEL).write_bytes(b"package")
    krew.write(tmp_path / "dist", URL, tmp_path / WHEEL, ROOT / "LICENSE")
    return tmp_path / "dist"


def test_the_manifest_is_about_the_archive(plugin: Path) -> None:
    manifest = yaml.safe_load((plugin / krew.MANIFEST).read_text())
    (platform,) = manifest["spec"]["platforms"]
    packed = (plugin / krew.ARCHIVE).read_bytes()
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Plugin", "nftlb")
    assert (platform["uri"], platform["sha256"]) == (URL, hashlib.sha256(packed).hexdigest())
    assert manifest["spec"]["version"] == f"v{__version__}"
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert {each["from"] for each in platform["files"]} == set(archive.getnames())
        assert archive.getmember(platform["bin"]).mode & 0o111


def test_the_home_page_is_that_of_who_publishes_it(plugin: Path) -> None:
    assert "homepage" not in yaml.safe_load((plugin / krew.MANIFEST).read_text())["spec"]
    published = yaml.safe_load(krew.manifest(URL, "0", WHEEL, "https://forge.example.com/team/kube-nftlb"))
    assert published["spec"]["homepage"] == "https://forge.example.com/team/kube-nftlb"


def test_the_archive_is_the_same_each_time() -> None:
    assert krew.archive(WHEEL, b"package", b"license") == krew.archive(WHEEL, b"package", b"license")


def test_the_launcher_runs_the_installed_program(plugin: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xzf", plugin / krew.ARCHIVE, "-C", tmp_path], check=True)
    installed = tmp_path / "bin" / "kube-nftlb"
    installed.parent.mkdir()
    installed.write_text('#!/bin/sh\necho "$@"\n')
    installed.chmod(0o755)

    # As krew installs it.
    link = tmp_path / "links" / "kubectl-nftlb"
    link.parent.mkdir()
    link.symlink_to("../kubectl-nftlb")

    def run(path: str) -> subprocess.CompletedProcess[str]:
        launcher = ["/bin/sh", str(link), "status", "-n", "a b"]
        return subprocess.run(launcher, env={"PATH": path}, capture_output=True, text=True, check=False)

    assert run(str(installed.parent)).stdout == "status -n a b\n"
    readlink = tmp_path / "nothing"
    readlink.mkdir()
    (readlink / "readlink").symlink_to("/usr/bin/readlink")
    alone = run(str(readlink))
    assert alone.returncode == 3
    assert alone.stderr.endswith(f"such as: pip install {link.parent}/../{WHEEL}\n")
    (readlink / "uvx").write_text('#!/bin/sh\necho uvx "$@"\n')
    (readlink / "uvx").chmod(0o755)
    by_uv = run(str(readlink))
    assert by_uv.stdout == f"uvx --quiet --from {link.parent}/../{WHEEL} kubectl-nftlb status -n a b\n"


def test_kubectl_finds_the_programs_that_are_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert {"kube-nftlb", "kubectl-nftlb", "kubectl_complete-nftlb"} <= scripts.keys()
