"""Build the Kubernetes programs and Helm from their Go modules, and nftlb with our patches, once."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kube_nftlb import errors
from lab import debian, go, locks, published, versions
from lab.progress import Count, Report
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
NFTLB_NEEDS = {
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "gcc": "/usr/bin/gcc",
    "libc6-dev": "/usr/include/stdio.h",
    "libev-dev": "/usr/include/ev.h",
    "libjansson-dev": "/usr/include/jansson.h",
    "libmnl-dev": "/usr/include/libmnl/libmnl.h",
    "libnftables-dev": "/usr/include/nftables/libnftables.h",
    "patch": "/usr/bin/patch",
}


@contextmanager
def ahead(programs: Sequence[str], version: Version) -> Iterator[None]:
    """Have programs built by another process during a block, which has to end with ``kubernetes``."""
    if not programs:
        yield
        return
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        [sys.executable, "-m", "lab.ahead", *programs],
        cwd=Path(__file__).parents[1],
        env={**os.environ, versions.VARIABLE: version.name},
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
    ) as process:
        try:
            yield
        except BaseException:
            process.terminate()
            raise


def kubernetes(programs: Sequence[str], version: Version, target: Path, cache: Path, report: Report) -> None:
    """Download or build programs into ``target``. Raises LabError with the end of Go's output if the build fails.

    Concurrent builds of the same programs wait for each other. Programs are moved into place only when all are
    complete.
    """
    target.mkdir(parents=True, exist_ok=True)
    with locks.locked(cache / "build.lock", report) as count:
        missing = [program for program in programs if not has_version(target / program, version)]
        if not missing:
            return
        with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as work:
            made = Path(work, "programs")
            made.mkdir()
            published_too = [program for program in missing if program in published.PROGRAMS]
            if published_too and not _download(published_too, version, made, report, count):
                published_too = []
            if to_build := [program for program in missing if program not in published_too]:
                _build(to_build, version, Path(work, "source"), made, cache, report, count)
            for program in made.iterdir():
                program.rename(target / program.name)


def _download(programs: Sequence[str], version: Version, folder: Path, report: Report, count: Count) -> bool:
    """Return True if all are there, as they were published; if not, ``report`` has the reason."""
    names = ", ".join(programs)
    sums = published.of_this_machine(programs, version)
    if sums is None:
        report(f"no checksums of {names} {version.full} as published are known: they are built")
        return False
    report(f"downloading {names} {version.full} from {published.site()}")
    try:
        published.fetch(sums, folder, count)
    except errors.LabError as error:
        report(f"{error}; they are built instead")
        return False
    return True


def _build(
    programs: Sequence[str], version: Version, source: Path, folder: Path, cache: Path, report: Report, count: Count
) -> None:
    toolchain = go.find(version.module, cache, report)
    # Go writes beside go.mod, and the folder of the module may be read-only.
    shutil.copytree(version.module, source)
    shutil.copy(versions.MODULES / "programs.go", source)
    shutil.copytree(versions.MODULES / PAUSE, source / PAUSE)
    report(f"building {', '.join(programs)} {version.full} with Go (takes minutes, once)")
    packages = ["./pause" if program == PAUSE else f"k8s.io/kubernetes/cmd/{program}" for program in programs]
    go.build(toolchain, source, folder, cache, packages, linker_flags(version), count)


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


def helm(cache: Path, report: Report) -> None:
    """Build Helm into ``cache/bin``, in the same way as ``kubernetes``."""
    target = cache / "bin" / HELM
    target.parent.mkdir(parents=True, exist_ok=True)
    with locks.locked(cache / "build-helm.lock", report) as count:
        if has_helm_version(target):
            return
        toolchain = go.find(_HELM_MODULE, cache, report)
        with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
            source = Path(folder, "source")
            shutil.copytree(_HELM_MODULE, source)
            report(f"building {HELM} {HELM_VERSION} with Go (takes minutes, once)")
            package = "helm.sh/helm/v3/cmd/helm"
            go.build(toolchain, source, Path(folder, HELM), cache, [package], _HELM_LINKER_FLAGS, count)
            Path(folder, HELM).rename(target)


def nftlb(cache: Path, report: Report) -> Path:
    """Return the nftlb with our patches, built into the cache if they have changed. Raises LabError."""
    target = place_of_nftlb(cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    with locks.locked(cache / "build-nftlb.lock", report):
        if target.exists():
            return target
        if missing := [package for package, path in NFTLB_NEEDS.items() if not Path(path).exists()]:
            debian.install(missing, report)
        report("building nftlb from Debian's source and our patches (seconds, but only once)")
        result = subprocess.run([_NFTLB / "build", target], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise errors.LabError(f"nftlb cannot be built:\n{(result.stdout + result.stderr)[-2000:].strip()}")
    return target


def place_of_nftlb(cache: Path) -> Path:
    """Return where ``nftlb`` is, or will be, with our patches as they are now."""
    return cache / "nftlb" / _digest(_NFTLB) / "nftlb"


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
