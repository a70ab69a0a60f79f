"""Build flannel's daemon from its Go module, once."""

import re
import shutil
import stat
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
            module, source = Path(folder, "module"), Path(folder, "source")
            shutil.copytree(_MODULE, module)
            report(f"building flannel {version()} with Go (takes minutes, once)")
            shutil.copytree(go.download(toolchain, module, _PATH, cache, count), source)
            _make_writable(source)
            main = source / "main.go"
            main.write_text(_LEFT_OUT.sub("", main.read_text()))
            flags = f"-s -w -X {_PATH}/pkg/version.Version={version()}"
            go.build(toolchain, source, Path(folder, target.name), cache, ["."], flags, count)
            Path(folder, target.name).rename(target)
    return target


def _make_writable(folder: Path) -> None:
    """Give files and folders the owner's right to write, which Go's cache of modules takes away."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
