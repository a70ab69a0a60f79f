"""Install a wheel that a lock file pins by hash."""

import subprocess
import sys
import tempfile
from pathlib import Path


def install(lock: Path, folder: Path) -> None:
    """Install it into a new folder, with a pip of its own: this Python may have none. Leaves nothing if it fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="build-") as work:
        venv, target = Path(work, "venv"), Path(work, "wheel")
        pip = [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command = [*pip, "--require-hashes", "--target", str(target), "-r", str(lock)]
        for each in ([sys.executable, "-m", "venv", str(venv)], command):
            if subprocess.run(each, capture_output=True, check=False).returncode != 0:
                return
        target.rename(folder)
