"""Installing Debian packages."""

import os
import shutil
import subprocess
from collections.abc import Callable

from kube_nftlb import errors


def install(packages: list[str], report: Callable[[str], None]) -> None:
    """Install packages with apt-get, as root. Raises LabError with the command to run where that cannot be done."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise errors.LabError(
            f"programs are missing; install what your distribution has for these Debian packages: {names}"
        )
    if os.geteuid() != 0:
        raise errors.LabError(f"programs are missing; run: sudo apt-get install -y --no-install-recommends {names}")
    report(f"installing {names}")
    if not _apt_get("install", "-y", "--no-install-recommends", *packages):
        # The lists of packages may be old, or not there at all.
        _apt_get("update")
        if not _apt_get("install", "-y", "--no-install-recommends", *packages):
            raise errors.LabError(f"apt-get cannot install {names}: run `apt-get install {names}` to see why")


def _apt_get(*arguments: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(["apt-get", *arguments], capture_output=True, check=False, env=environment).returncode == 0
