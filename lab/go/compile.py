"""Build programs with Go, and count the packages while they are compiled."""

import json
import os
import re
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kube_nftlb import errors
from lab.go import memory
from lab.progress import Count

BUILD = ("build",)
BUILD_TESTS = ("test", "-c", "-vet=off")
"""For a package whose tests are the program."""
_PACKAGE = re.compile(r"[\w./~+-]+(?: \[[\w./~+-]+\])?")
"""A line with which ``go build -v`` names a package; those of errors have a colon or begin with #."""
_TAIL_LINES = 40
_TAIL = 2000


def build(
    go: Path,
    source: Path,
    target: Path,
    cache: Path,
    packages: Sequence[str],
    flags: str,
    count: Count,
    how: Sequence[str] = BUILD,
) -> None:
    """Build packages of the module in ``source``, all at once, into ``target``: a folder, or the path of the only one.

    ``flags`` are the linker's. Raises LabError with the end of Go's output if that fails.
    """
    common = ["-tags", "programs", "-trimpath", "-ldflags", flags]
    environment = _environment(cache)
    test = ["-test"] if how == BUILD_TESTS else []
    stale = "{{if .Stale}}{{.ImportPath}}{{end}}"
    modules = _Modules(count)
    listed = _run([str(go), "list", "-deps", *test, *common, "-f", stale, *packages], source, environment, modules)
    compiled = _Compiled(count, total=len(listed.splitlines()))
    _run([str(go), *how, "-v", *common, "-o", str(target), *packages], source, environment, compiled)


def download(go: Path, source: Path, module: str, cache: Path, count: Count) -> Path:
    """Return the folder with a module that the go.mod in ``source`` requires and its go.sum pins. Raises LabError."""
    command = [str(go), "mod", "download", "-json", module]
    found = json.loads(_run(command, source, _environment(cache), _Modules(count)))
    return Path(found["Dir"])


def download_zip(go: Path, source: Path, module: str, version: str, cache: Path, count: Count) -> Path:
    """Return the zip file of a module in that version, which the go.sum in ``source`` pins. Raises LabError.

    Its go.mod may ask for a newer Go: that is for those who compile it.
    """
    command = [str(go), "mod", "download", "-json", f"{module}@{version}"]
    found = json.loads(_run(command, source, _environment(cache), _Modules(count), may_fail=True) or "{}")
    pinned = (source / "go.sum").read_text().splitlines()
    if not found.get("Zip") or f"{module} {version} {found.get('Sum')}" not in pinned:
        raise errors.LabError(f"cannot download {module} {version}: {found.get('Error', 'it is not what go.sum pins')}")
    return Path(found["Zip"])


class _Modules:
    """Counts the modules that Go fetches."""

    def __init__(self, count: Count) -> None:
        self._count, self._done = count, 0

    def __call__(self, line: str) -> bool:
        if not line.startswith("go: downloading "):
            return False
        self._done += 1
        self._count("Go modules fetched", self._done, None)
        return True


class _Compiled:
    """Counts the packages that Go compiles."""

    def __init__(self, count: Count, total: int) -> None:
        self._count, self._done, self._total = count, 0, total
        self._modules = _Modules(count)

    def __call__(self, line: str) -> bool:
        if _PACKAGE.fullmatch(line) is None:
            return self._modules(line)
        self._done += 1
        self._count("Go packages compiled", min(self._done, self._total), self._total)
        return True


def _environment(cache: Path) -> Mapping[str, str]:
    # One compiler per processor is what Go starts.
    own = memory.settings(memory.available(Path("/proc/meminfo").read_text()), len(os.sched_getaffinity(0)))
    environment = {**os.environ, **own, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    if "HOME" not in environment:
        environment.update(GOPATH=str(cache / "go"), GOCACHE=str(cache / "go-build"))
    return environment


def _run(
    command: list[str],
    folder: Path,
    environment: Mapping[str, str],
    counted: Callable[[str], bool],
    *,
    may_fail: bool = False,
) -> str:
    """Run Go and return its output; ``counted`` gets each line of its messages and returns True if it counted it."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.PIPE, text=True
        )
        with process:
            try:
                tail.extend(line for line in process.stderr or () if not counted(line.rstrip("\n")))
            except BaseException:
                # Go ends its compilers too, and then itself.
                process.send_signal(signal.SIGINT)
                raise
        if process.returncode != 0 and not may_fail:
            raise errors.LabError(f"go {command[1]} failed:\n{''.join(tail)[-_TAIL:].strip()}")
        output.seek(0)
        return output.read()
