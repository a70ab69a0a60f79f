"""Build flannel's daemon from its Go module, once."""

import re
import tempfile
from pathlib import Path

from lab import go, locks
from lab.progress import Report

_MODULE = Path(__file__).parent
_PATH = "github.com/flannel-io/flannel"
_LEFT_OUT = re.compile(rf'^\t_ "{_PATH}/pkg/backend/(?:tencentvpc|udp)"\n', re.MULTILINE)
"""One needs a module of a cloud that the Go proxy does not have, and the other needs C."""


def version() -> str:
    """Return the version that go.mod requires, as flannel prints it. Raises LabError if it requires none."""
    return go.required_version(_MODULE, _PATH)


def flanneld(cache: Path, report: Report) -> Path:
    """Return flannel's daemon, built into the cache if it is missing. Raises LabError with the end of Go's output."""
    target = cache / "flannel" / version() / "flanneld"
    target.parent.mkdir(parents=True, exist_ok=True)
    with locks.locked(cache / "build-flannel.lock", report) as count:
        if target.exists():
            return target
        toolchain = go.find(_MODULE, cache, report)
        with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
            report(f"building flannel {version()} with Go (takes minutes, once)")
            source = go.copy_source(toolchain, _MODULE, _PATH, Path(folder), cache, count)
            main = source / "main.go"
            main.write_text(_LEFT_OUT.sub("", main.read_text()))
            flags = f"-s -w -X {_PATH}/pkg/version.Version={version()}"
            go.build(toolchain, source, Path(folder, target.name), cache, ["."], flags, count)
            Path(folder, target.name).rename(target)
    return target
