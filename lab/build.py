"""Build the Kubernetes programs and Helm from their Go modules, and nftlb with our patches, once."""

import fcntl
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kube_nftlb import errors
from lab import debian, go, versions
from lab.versions import Version

PAUSE = "pause"

HELM = "helm"
HELM_VERSION = "v3.19.5"
_HELM_MODULE = Path(__file__).parent / "helm"
_HELM_STAMP = {
    "internal/version.version": HELM_VERSION,
    # The version for which charts are rendered and linted without a cluster.
    **{
        f"{package}.k8sVersion{part}": number
        for package in ("pkg/chartutil", "pkg/lint/rules")
        for part, number in zip(("Major", "Minor"), versions.newest()[:2], strict=True)
    },
}
_HELM_LINKER_FLAGS = " ".join(
    ["-s", "-w", *(f"-X helm.sh/helm/v3/{key}={value}" for key, value in _HELM_STAMP.items())]
)

_NFTLB = Path(__file__).parent / "nftlb"
_NFTLB_NEEDS = {
    "gcc": "/usr/bin/gcc",
    "libc6-dev": "/usr/include/stdio.h",
    "libev-dev": "/usr/include/ev.h",
    "libjansson-dev": "/usr/include/jansson.h",
    "libmnl-dev": "/usr/include/libmnl/libmnl.h",
    "libnftables-dev": "/usr/include/nftables/libnftables.h",
    "patch": "/usr/bin/patch",
}


def kubernetes(programs: list[str], version: Version, target: Path, cache: Path, report: Callable[[str], None]) -> None:
    """Build programs into ``target``. Raises LabError with the end of Go's output if a build fails.

    Concurrent builds of the same programs wait for each other. A program is moved into place only when it is complete.
    """
    target.mkdir(parents=True, exist_ok=True)
    with locked(cache / "build.lock", report):
        programs = [program for program in programs if not has_version(target / program, version)]
        if not programs:
            return
        toolchain = go.find(cache, report)
        with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
            # Go writes beside go.mod, and this folder may be read-only.
            source = Path(folder, "source")
            shutil.copytree(version.module, source)
            shutil.copy(versions.MODULES / "programs.go", source)
            shutil.copytree(versions.MODULES / PAUSE, source / PAUSE)
            for number, program in enumerate(programs, 1):
                report(f"building {program} {version.full} with Go ({number} of {len(programs)}; takes minutes, once)")
                package = "./pause" if program == PAUSE else f"k8s.io/kubernetes/cmd/{program}"
                go.build(toolchain, source, Path(folder, program), cache, package, linker_flags(version))
                Path(folder, program).rename(target / program)


def linker_flags(version: Version) -> str:
    """Return the flags of Go's linker by which a program knows its version."""
    stamp = {
        "gitVersion": version.full,
        "gitMajor": version.major,
        "gitMinor": version.minor,
        "gitTreeState": "clean",
        "gitCommit": version.full,
    }
    return " ".join(["-s", "-w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())])


def helm(cache: Path, report: Callable[[str], None]) -> None:
    """Build Helm into ``cache/bin``, in the same way as ``kubernetes``."""
    target = cache / "bin" / HELM
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(cache / "build-helm.lock", report):
        if has_helm_version(target):
            return
        toolchain = go.find(cache, report)
        with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
            source = Path(folder, "source")
            shutil.copytree(_HELM_MODULE, source)
            report(f"building {HELM} {HELM_VERSION} with Go (takes minutes, once)")
            go.build(toolchain, source, Path(folder, HELM), cache, "helm.sh/helm/v3/cmd/helm", _HELM_LINKER_FLAGS)
            Path(folder, HELM).rename(target)


def nftlb(cache: Path, report: Callable[[str], None]) -> Path:
    """Return the nftlb with our patches, built into the cache if they have changed. Raises LabError."""
    target = cache / "nftlb" / _digest(_NFTLB) / "nftlb"
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(cache / "build-nftlb.lock", report):
        if target.exists():
            return target
        if missing := [package for package, path in _NFTLB_NEEDS.items() if not Path(path).exists()]:
            debian.install(missing, report)
        report("building nftlb from Debian's source and our patches (seconds, but only once)")
        result = subprocess.run([_NFTLB / "build", target], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise errors.LabError(f"nftlb cannot be built:\n{(result.stdout + result.stderr)[-2000:].strip()}")
    return target


def has_helm_version(program: Path) -> bool:
    """Return True if the program is a Helm of the version the chart is tested with."""
    try:
        answer = subprocess.run(
            [program, "version", "--short"], capture_output=True, text=True, check=False, timeout=30
        )
    except OSError:
        return False
    return answer.stdout.startswith(HELM_VERSION)


def has_version(program: Path, version: Version) -> bool:
    """Return True if the program is a Kubernetes program of the same minor version."""
    if program.name == PAUSE:
        # Our own, without a version.
        return program.exists()
    arguments = ["version", "--client"] if program.name == "kubectl" else ["--version"]
    try:
        answer = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return False
    return kubernetes_version(answer.stdout) == version[:2]


def kubernetes_version(output: str) -> tuple[int, int] | None:
    """Return the major and minor version in the version output of a Kubernetes program, or None."""
    match = re.search(r"\bv(\d+)\.(\d+)\.\d+", output)
    return (int(match[1]), int(match[2])) if match else None


def _digest(folder: Path) -> str:
    """Return a hash of the names and contents of a folder's files."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)).hexdigest()[:16]


@contextmanager
def locked(path: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a file, which concurrent builds of the same programs wait for."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another build of the same programs")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
