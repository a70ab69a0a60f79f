"""The source of a program's Go module, where Go may write beside it."""

import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.go.compile import download
from lab.progress import Count


@contextmanager
def source(go: Path, module: Path, path: str, cache: Path, count: Count) -> Iterator[Path]:
    """Yield a folder with the source of the Go module ``path``, which the go.mod in ``module`` requires, for a block.

    Its parent may have what is built, and goes with it; both are in ``cache``. Raises LabError.
    """
    with tempfile.TemporaryDirectory(dir=cache, prefix="build-") as folder:
        # Go writes beside go.mod, and the folder of the module may be read-only.
        copy, found = Path(folder, "module"), Path(folder, "source")
        shutil.copytree(module, copy)
        shutil.copytree(download(go, copy, path, cache, count), found)
        _make_writable(found)
        yield found


def _make_writable(folder: Path) -> None:
    """Give files and folders the owner's right to write, which Go's cache of modules takes away."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
