"""The images of the tests, made of Debian's packages and the programs of the Go modules, as no registry is reachable.

One root file system plays all images of Kubernetes that the tests name: it has what their own files have, or Debian's
program of the same name and options.
"""

import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kube_nftlb import errors
from lab import debian, locks
from lab import programs as lab_programs
from lab.containers import archive
from tests.upstream import programs

COREDNS = "kube-nftlb.io/upstream/coredns:1"

_SUITE = "trixie"
_PACKAGES = (
    "bind9-dnsutils",
    "ca-certificates",
    "conntrack",
    "curl",
    "iproute2",
    "iptables",
    "iputils-ping",
    "netcat-openbsd",
    "wget",
)
_PLAYED = ("agnhost", "busybox", "distroless-iptables", "glibc-dns-testing", "nginx")
"""The images of Kubernetes that have the agnhost of this version, or tools of Debian."""
_PAUSE = "pause"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Image(NamedTuple):
    """An image of an archive: all have the same layers."""

    tags: Sequence[str]
    entrypoint: Sequence[str]
    command: Sequence[str] = ()


def build_all(programs_: Mapping[str, Path], pause: Path, folder: Path, report: Callable[[str], None]) -> list[Path]:
    """Write the archives of all images to a folder and return them. Raises LabError."""
    named = _named(programs_[programs.TESTS])
    root = _debian_root(report)
    layer = folder / "programs.tar"
    with tarfile.open(layer, "w") as tar:
        for name in (programs.AGNHOST, programs.REGRESSION, programs.COREDNS):
            tar.add(programs_[name], arcname=name)
        folder_of_uploads = tarfile.TarInfo("uploads")
        folder_of_uploads.type, folder_of_uploads.mode = tarfile.DIRTYPE, 0o777
        tar.addfile(folder_of_uploads)
    images = [
        Image([tag for name in _PLAYED for tag in named.get(name, ())], [f"/{programs.AGNHOST}"], ["pause"]),
        Image(named[programs.REGRESSION], [f"/{programs.REGRESSION}"]),
        Image([COREDNS], [f"/{programs.COREDNS}"]),
    ]
    whole = folder / "images.tar"
    write(whole, [root, layer], images)
    paused = []
    for number, tag in enumerate(named[_PAUSE]):
        paused.append(folder / f"pause-{number}.tar")
        paused[-1].write_bytes(archive.of_program(pause.read_bytes(), tag))
    return [whole, *paused]


def write(file: Path, layers: Sequence[Path], images: Sequence[Image]) -> None:
    """Write an archive of several images with the same layers, as ``docker save`` does."""
    digests = []
    for layer in layers:
        with layer.open("rb") as opened:
            digests.append(f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}")
    machine = platform.machine()
    names = [f"layer-{number}.tar" for number in range(len(layers))]
    manifest = []
    with tarfile.open(file, "w") as tar:
        for name, layer in zip(names, layers, strict=True):
            tar.add(layer, arcname=name)
        for number, image in enumerate(images):
            config: dict[str, Any] = {
                "architecture": _ARCHITECTURES.get(machine, machine),
                "os": "linux",
                "config": {
                    "Entrypoint": list(image.entrypoint),
                    "Cmd": list(image.command),
                    "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                },
                "rootfs": {"type": "layers", "diff_ids": digests},
            }
            _add(tar, f"config-{number}.json", config)
            manifest.append({"Config": f"config-{number}.json", "RepoTags": list(image.tags), "Layers": names})
        _add(tar, "manifest.json", manifest)


def tags(listed: str) -> dict[str, list[str]]:
    """Return the tags in the output of ``e2e.test --list-images`` by the name of their repository."""
    found: dict[str, list[str]] = {}
    for line in listed.split():
        if match := re.fullmatch(r"\S+/([^/:]+):[^/:]+", line):
            found.setdefault(match[1], []).append(line)
    return found


def _named(tests: Path) -> dict[str, list[str]]:
    done = subprocess.run([tests, "--list-images"], capture_output=True, text=True, check=False)
    found = tags(done.stdout)
    if missing := {*_PLAYED, _PAUSE, programs.REGRESSION} - set(found):
        raise errors.LabError(f"{tests} --list-images does not name {', '.join(sorted(missing))}: {done.stderr[-500:]}")
    return found


def _debian_root(report: Callable[[str], None]) -> Path:
    """Return the root file system as an archive, from the cache."""
    cache = lab_programs.cache_folder() / "upstream"
    cache.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(" ".join((_SUITE, *_PACKAGES)).encode()).hexdigest()[:12]
    target = cache / f"root-{digest}.tar"
    with locks.locked(cache / "root.lock", report):
        if target.exists():
            return target
        if lab_programs.find("debootstrap") is None:
            debian.install(["debootstrap"], report)
        report(f"making a root file system of Debian {_SUITE} (a minute, once)")
        with tempfile.TemporaryDirectory(dir=cache, prefix="root-") as folder:
            root, packed = Path(folder, "root"), Path(folder, "root.tar")
            _run("debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", _SUITE, str(root))
            for path in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
                shutil.rmtree(root / path, ignore_errors=True)
            _run("tar", "--create", f"--file={packed}", f"--directory={root}", "--exclude=./dev/*", ".")
            packed.rename(target)
    return target


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise errors.LabError(f"{command[0]} failed: {(done.stdout + done.stderr)[-2000:].strip()}")


def _add(tar: tarfile.TarFile, name: str, content: object) -> None:
    text = json.dumps(content).encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(text)
    tar.addfile(entry, io.BytesIO(text))
