"""Builds the image as a user would, but on a machine without a container engine and without a registry.

Debian's buildah builds it (chroot isolation), upon a base that debootstrap makes. Layers stay in the cache folder.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab import debian, programs

CHECKOUT = Path(__file__).parents[2]
NAME = "docker.io/library/kube-nftlb"
_SUITE = "trixie"
_BASE = f"localhost/kube-nftlb-base:{_SUITE}"
_TOOLS = {"buildah": "buildah", "debootstrap": "debootstrap", "runc": "runc"}
_MACHINE_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", re.DOTALL)
_TIMEOUT_S = 1800


class Image:
    """The image, in a storage of buildah's own."""

    def __init__(self, storage: Path, name: str) -> None:
        self.name = name
        self._storage = storage

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of containers: User, Entrypoint, Labels and so on."""
        found: dict[str, Any] = json.loads(_buildah(self._storage, "inspect", "--type", "image", self.name))
        config: dict[str, Any] = found["Docker"]["config"]
        return config

    def save(self, file: Path) -> None:
        """Write it to a file, as ``docker save`` does."""
        _buildah(self._storage, "push", self.name, f"docker-archive:{file}:{self.name}")

    def unpack(self, folder: Path) -> None:
        """Copy its root file system to a folder that is not there yet."""
        container = _buildah(self._storage, "from", "--pull-never", self.name).strip()
        try:
            mounted = _buildah(self._storage, "mount", container).strip()
            _run("cp", "-a", mounted, str(folder))
        finally:
            _buildah(self._storage, "rm", container)


def build() -> Image:
    """Build the image. Raises LabError if the tools cannot be installed, AssertionError if the build fails."""
    cache = _prepared()
    version = re.search(r'^__version__ = "(.+)"', (CHECKOUT / "kube_nftlb/__init__.py").read_text(), re.MULTILINE)
    assert version
    name = f"{NAME}:{version[1]}"
    with _locked(cache / "lock"):
        storage = cache / "storage"
        _need_base(storage, cache)
        arguments = {"BASE": _BASE, "VERSION": version[1], "REVISION": "test"}
        options = [option for key, value in arguments.items() for option in ("--build-arg", f"{key}={value}")]
        _buildah(
            storage, "bud", "--isolation=chroot", "--layers", "--format=docker", *options, "-t", name, str(CHECKOUT)
        )
    return Image(storage, name)


def release(folder: Path) -> Path:
    """Run ``make release``'s script with the same base and layers. Return the folder with what it built.

    ``folder`` is for its settings. Raises as ``build`` does.
    """
    cache = _prepared()
    storage = cache / "storage"
    settings = _settings(folder, storage)
    with _locked(cache / "lock"):
        _need_base(storage, cache)
        _run(
            *("env", f"CONTAINERS_STORAGE_CONF={settings}", "BUILDAH_ISOLATION=chroot", "DOCKER_HOST=unix:///nowhere"),
            *("nice", sys.executable, str(CHECKOUT / ".ci/release"), "--build-arg", f"BASE={_BASE}"),
        )
    return CHECKOUT / "dist/release"


def publish(registry: str) -> str:
    """Run ``make publish``'s script with what ``release`` has built. Return what it says."""
    cache = _prepared()
    with tempfile.TemporaryDirectory() as folder, _locked(cache / "lock"):
        settings = _settings(Path(folder), cache / "storage")
        environment = (f"CONTAINERS_STORAGE_CONF={settings}", f"REGISTRY={registry}", "PLAIN_HTTP=1")
        return _run("env", *environment, sys.executable, str(CHECKOUT / ".ci/publish"))


def _settings(folder: Path, storage: Path) -> Path:
    """Return a file in the folder by which buildah finds this storage."""
    settings = folder / "storage.conf"
    settings.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{storage}"\nrunroot = "{storage}-run"\n')
    return settings


def _prepared() -> Path:
    """Install what is missing, and return the cache's folder."""
    if missing := sorted({package for tool, package in _TOOLS.items() if programs.find(tool) is None}):
        debian.install(missing, lambda _: None)
    cache = programs.cache_folder() / "image"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _need_base(storage: Path, cache: Path) -> None:
    if _BASE not in _buildah(storage, "images", "--format", "{{.Name}}:{{.Tag}}"):
        _make_base(storage, cache)


def _make_base(storage: Path, cache: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache, prefix="base-") as folder:
        root = Path(folder, "root")
        _run("debootstrap", "--variant=minbase", _SUITE, str(root))
        shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
        # A machine behind a proxy trusts that proxy's authority.
        trusted = root / "usr/local/share/ca-certificates"
        trusted.mkdir(parents=True, exist_ok=True)
        if _MACHINE_CERTIFICATES.exists():
            for number, text in enumerate(_CERTIFICATE.findall(_MACHINE_CERTIFICATES.read_text())):
                (trusted / f"machine-{number}.crt").write_text(text)
        container = _buildah(storage, "from", "scratch").strip()
        _buildah(storage, "add", container, str(root), "/")
        _buildah(storage, "commit", "--rm", container, _BASE)


def _buildah(storage: Path, *arguments: str) -> str:
    where = ("--root", str(storage), "--runroot", f"{storage}-run", "--storage-driver", "overlay")
    return _run("nice", "buildah", *where, *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
        env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
    )
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
