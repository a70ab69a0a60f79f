"""Copy the source of a module, to be changed and built."""

import shutil
import stat
from pathlib import Path

from lab.go.compile import download
from lab.progress import Count


def copy_source(go: Path, pinned: Path, path: str, folder: Path, cache: Path, count: Count) -> Path:
    """Return a copy below ``folder`` of the module ``path`` that the go.mod in ``pinned`` requires. Raises LabError."""
    module, source = folder / "module", folder / "source"
    # Go writes beside go.mod, and the folder of the module may be read-only.
    shutil.copytree(pinned, module)
    shutil.copytree(download(go, module, path, cache, count), source)
    _make_writable(source)
    return source


def _make_writable(folder: Path) -> None:
    """Give files and folders the owner's right to write, which Go's cache of modules takes away."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
