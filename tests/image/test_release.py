"""``make release``: what it builds is complete, tells what is in it, and installs from an OCI registry."""

import contextlib
import hashlib
import json
import os
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kube_nftlb
from lab import debian, programs
from tests import documents
from tests.chart.render import by_key, helm, render
from tests.functional.cluster import eventually
from tests.image import build

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

NAME = f"kube-nftlb-{kube_nftlb.__version__}"
REGISTRY = """
version: 0.1
storage: {filesystem: {rootdirectory: %s}}
http: {addr: "127.0.0.1:%d"}
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("needs root: debootstrap, and chroot isolation")
    return build.release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def sbom(release: Path) -> dict[str, Any]:
    (path,) = release.glob("*.cdx.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Debian's docker-registry, which speaks OCI, on a port of this machine."""
    folder = programs.cache_folder() / "docker-registry"
    if not (program := folder / "usr/bin/docker-registry").exists():
        debian.unpack("docker-registry", folder, print)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = tmp_path / "registry.yaml"
    settings.write_text(REGISTRY % (tmp_path / "registry", port))
    with (tmp_path / "log").open("wb") as log, subprocess.Popen([program, "serve", settings], stderr=log) as process:
        try:
            eventually(lambda: answers(port), "the registry answers", 30)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5) as response:
        return bool(response.status == 200)
    return False


def test_its_files_are_those_of_the_checksums(release: Path) -> None:
    lines = (line.split() for line in (release / "SHA256SUMS").read_text().splitlines())
    told = {name: digest for digest, name in lines}
    files = {file.name: file for file in release.iterdir() if file.name != "SHA256SUMS"}
    assert {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()} == told
    assert {f"{NAME}.tgz", f"{NAME}.yaml", "kubectl-nftlb.tar.gz", "nftlb.yaml"} < files.keys()
    assert sorted(name.rpartition("-")[2] for name in files if name.startswith(f"{NAME}-linux")) in (
        ["amd64.cdx.json", "amd64.tar"],
        ["arm64.cdx.json", "arm64.tar"],
    )


def test_the_sbom_names_every_package_of_debian_and_python(sbom: dict[str, Any]) -> None:
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    purls = {component["purl"].partition("?")[0]: component for component in sbom["components"]}
    python = {purl.removeprefix("pkg:pypi/") for purl in purls if purl.startswith("pkg:pypi/")}
    locked = {
        line.split()[0].replace("==", "@").lower()
        for line in (build.CHECKOUT / "requirements-image.lock").read_text().splitlines()
        if "==" in line and ";" not in line
    }
    assert f"kube-nftlb@{kube_nftlb.__version__}" in python
    assert locked <= python
    debian_packages = {purl.removeprefix("pkg:deb/debian/").partition("@")[0] for purl in purls}
    assert {"libc6", "libnftables1", "nftables", "python3", "libev4t64"} <= debian_packages
    (nftlb,) = (component for component in purls.values() if component["name"] == "nftlb")
    assert "+kube-nftlb." in nftlb["version"], "our patches are part of the version"


def test_the_sbom_names_all_that_dpkg_names(sbom: dict[str, Any], tmp_path: Path) -> None:
    image = build.build()
    image.unpack(tmp_path / "root")
    query = ("dpkg-query", f"--admindir={tmp_path}/root/var/lib/dpkg", "-W", "-f=${binary:Package} ${Version}\n")
    listed = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    subprocess.run(["rm", "-rf", tmp_path / "root"], check=True)
    named = {f"{component['name']} {component['version']}" for component in sbom["components"]}
    assert {line.replace(":amd64", "").replace(":arm64", "") for line in listed} <= named


@pytest.mark.usefixtures("release")
def test_image_and_chart_are_published_and_installed_from_there(registry: str) -> None:
    pushed = build.publish(registry)
    assert re.fullmatch(
        rf"{registry}/kube-nftlb@sha256:\w{{64}}\n{registry}/charts/kube-nftlb@sha256:\w{{64}}\n", pushed
    )
    with urllib.request.urlopen(f"http://{registry}/v2/kube-nftlb/tags/list", timeout=30) as response:
        assert json.load(response)["tags"] == [kube_nftlb.__version__]
    where = (f"oci://{registry}/charts/kube-nftlb", "--version", kube_nftlb.__version__, "--plain-http")
    done = helm("template", "kube-nftlb", *where, "--namespace", "kube-nftlb-system", values={})
    assert done.returncode == 0, done.stderr
    assert by_key(documents.parse_all(done.stdout)) == by_key(render({}))
