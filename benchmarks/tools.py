"""Programs that only benchmarks need: load generators and other proxies, downloaded on first use.

Debian packages are extracted into the cache, not installed: nothing is started, and the host does not change.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from kube_nftlb import errors
from lab import build, programs

_K6 = "go.k6.io/k6@v1.8.1"
_LIBRARIES = "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"


class Tool(NamedTuple):
    """A program, and the folder of its extracted packages; None for a program of the host."""

    path: Path
    unpacked: Path | None = None

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs it with its own libraries."""
        if self.unpacked is None:
            return [str(self.path), *arguments]
        libraries = ":".join(str(self.unpacked / folder) for folder in _LIBRARIES)
        return ["env", f"LD_LIBRARY_PATH={libraries}", str(self.path), *arguments]


class _Package(NamedTuple):
    path: str
    packages: tuple[str, ...]


_DEBIAN = {
    "wrk": _Package("usr/bin/wrk", ("wrk", "libluajit-5.1-2")),
    "haproxy": _Package("usr/sbin/haproxy", ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")),
    "nginx": _Package("usr/sbin/nginx", ("nginx", "libnginx-mod-stream")),
}


def find(name: str) -> Tool | None:
    """Return a program that was downloaded or built before, or is installed on the host; None if there is none."""
    if name == "nftlb":
        # Not Debian's: a lab runs the one with our patches.
        built = build.place_of_nftlb(programs.cache_folder())
        return Tool(built) if built.exists() else None
    if name in _DEBIAN and (path := _folder(name) / _DEBIAN[name].path).exists():
        return Tool(path, _folder(name))
    if name not in _DEBIAN and (found := programs.find(name)):
        return Tool(found)
    return None


def ensure(name: str) -> Tool:
    """Return wrk, haproxy, nginx or k6, downloaded if missing. Raises LabError if it is not available."""
    if found := find(name):
        return found
    print(f"   downloading {name}", flush=True)
    if name == "k6":
        _build_k6()
    else:
        _unpack(_DEBIAN[name].packages, _folder(name))
    if found := find(name):
        return found
    raise errors.LabError(f"{name} is still missing after the download")


def _folder(name: str) -> Path:
    return programs.cache_folder() / "benchmarks" / name


def _unpack(packages: tuple[str, ...], target: Path) -> None:
    if shutil.which("apt-get") is None:
        raise errors.LabError(f"{', '.join(packages)} come from Debian packages, which require apt-get")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Moved into place only when complete.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        _run(["apt-get", "-o", "APT::Sandbox::User=root", "download", *packages], Path(folder))
        for package in sorted(Path(folder).glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), "unpacked"], Path(folder))
        Path(folder, "unpacked").rename(target)


def _build_k6() -> None:
    if (go := shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")) is None:
        raise errors.LabError("k6 is built from its Go module, which requires `go` in PATH")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GOBIN": folder, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        _run(["nice", go, "install", "-trimpath", "-ldflags", "-s -w", _K6], Path(folder), environment)
        target = programs.cache_folder() / "bin"
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(folder, "k6"), target / "k6.new")
        (target / "k6.new").rename(target / "k6")


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise errors.LabError(f"{' '.join(command)}: {done.stderr[-1000:].strip()}")
