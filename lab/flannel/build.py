"""Build flannel's daemon from its Go module, once."""

import re
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
        report(f"building flannel {version()} with Go (takes minutes, once)")
        with go.source(toolchain, _MODULE, _PATH, cache, count) as source:
            main = source / "main.go"
            main.write_text(_LEFT_OUT.sub("", main.read_text()))
            flags = f"-s -w -X {_PATH}/pkg/version.Version={version()}"
            made = source.with_name(target.name)
            go.build(toolchain, source, made, cache, ["."], flags, count)
            made.rename(target)
    return target
