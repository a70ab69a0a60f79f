"""The image: what is in it, what is not, and that the programs in it work without containers too."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image import build

# The first build takes minutes, of which most go into debootstrap.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

_MOST_MB = 300
_SECRET = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----|AKIA[0-9A-Z]{16}|(?i:password|passwd)\s*=\s*['\"][^'\"]{6,}['\"]"
)


@pytest.fixture(scope="module")
def image() -> build.Image:
    if os.geteuid() != 0:
        pytest.skip("needs root: debootstrap, and chroot isolation")
    return build.build()


@pytest.fixture(scope="module")
def root(image: build.Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's root file system, as a folder."""
    folder = tmp_path_factory.mktemp("image") / "root"
    image.unpack(folder)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def run(root: Path, *command: str, user: str = "65532:65532") -> "subprocess.CompletedProcess[str]":
    """Run a command in the root, which is read-only, with a /proc and network of its own, and the machine's /dev."""
    mounts = f"mount --bind {root} {root}; mount -o remount,ro,bind {root}; mount -t proc proc {root}/proc"
    mounts = f"{mounts}; mount --rbind /dev {root}/dev"
    script = f'{mounts}; exec chroot --userspec={user} {root} "$@"'
    environment = {"PATH": "/opt/kube-nftlb/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-ec", script, "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_it_runs_as_nobody_in_particular_unless_told_otherwise(image: build.Image) -> None:
    assert image.config["User"] == "65532:65532"
    assert image.config["Entrypoint"] == ["kube-nftlb"]
    assert image.config["Healthcheck"]["Test"] == ["CMD", "kube-nftlb", "healthy"]


def test_it_says_what_it_is(image: build.Image) -> None:
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in image.config["Labels"].items()}
    assert labels["title"] == "kube-nftlb"
    assert labels["licenses"] == "Apache-2.0 AND AGPL-3.0-or-later"
    assert f":{labels['version']}" in image.name
    assert labels["revision"]
    assert labels["description"]


def test_its_settings_hold_no_secret(image: build.Image) -> None:
    assert {variable.partition("=")[0] for variable in image.config["Env"]} == {
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
    }


def test_no_file_of_ours_holds_a_secret(root: Path) -> None:
    ours = [path for path in (root / "opt").rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in ours if "/kube_nftlb/" in str(path) and _SECRET.search(path.read_bytes())] == []
    assert [path for path in ours if path.suffix in (".key", ".p12") or path.name in (".netrc", "pip.conf")] == []
    assert not (root / "root/.cache").exists()


def test_no_file_has_the_setuid_or_setgid_bit(root: Path) -> None:
    found = subprocess.run(
        ["find", str(root), "-type", "f", "-perm", "/6000"], capture_output=True, text=True, check=True
    )
    assert found.stdout == ""


def test_it_has_no_compiler_no_pip_and_no_lists_of_packages(root: Path) -> None:
    programs = {
        path.name for folder in ("usr/bin", "usr/sbin", "opt/kube-nftlb/bin") for path in (root / folder).iterdir()
    }
    assert not {name for name in programs if re.fullmatch(r"gcc.*|cc|make|pip[\d.]*|curl|wget|ssh", name)}
    assert {"nftlb", "nft", "kube-nftlb"} <= programs
    assert [path for path in (root / "var/lib/apt/lists").rglob("*") if path.is_file()] == []


def test_it_stays_small(root: Path) -> None:
    used = subprocess.run(["du", "-sm", "--apparent-size", str(root)], capture_output=True, text=True, check=True)
    assert int(used.stdout.split()[0]) < _MOST_MB


def test_the_command_works_as_a_user_without_rights_on_a_read_only_root(root: Path) -> None:
    helped = run(root, "kube-nftlb", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "operator" in helped.stdout
    written = run(root, "touch", "/opt/x", user="0:0")
    assert "Read-only file system" in written.stderr


def test_the_programs_say_which_setting_is_missing(root: Path) -> None:
    agent = run(root, "kube-nftlb", "agent", user="0:0")
    assert agent.returncode == 1
    assert "KUBE_NFTLB_NODE_NAME must be set" in agent.stderr


def test_its_nftlb_makes_the_rules_of_a_service(root: Path) -> None:
    farm = {
        "apiVersion": "kube-nftlb.io/v1alpha1",
        "kind": "NftlbFarm",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {
            "addresses": [{"ip": "10.99.0.1", "ports": "80"}],
            "backends": [{"name": "one", "ip": "10.244.1.2", "port": 8080}],
        },
    }
    (root / "farm.json").write_text(json.dumps(farm))
    shown = run(root, "sh", "-c", "mount -t tmpfs tmpfs /tmp && kube-nftlb render -f /farm.json -o nft", user="0:0")
    (root / "farm.json").unlink()
    assert shown.returncode == 0, shown.stderr
    assert "10.244.1.2" in shown.stdout
    assert "chain nat-shop" in shown.stdout
