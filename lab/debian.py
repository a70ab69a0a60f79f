"""Install Debian packages."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from kube_nftlb import errors

_LOCKED_MAX_S = 120


def install(packages: list[str], report: Callable[[str], None]) -> None:
    """Install packages with apt-get. Raises LabError with the command to run if that is not possible."""
    names = " ".join(packages)
    if shutil.which("apt-get") is None:
        raise errors.LabError(
            f"missing programs: install your distribution's equivalents of these Debian packages: {names}"
        )
    if os.geteuid() != 0:
        raise errors.LabError(f"missing programs; run: sudo apt-get install -y --no-install-recommends {names}")
    report(f"installing {names}")
    if not _apt_get("install", "-y", "--no-install-recommends", *packages):
        # The package lists may be outdated or missing.
        _apt_get("update")
        if not _apt_get("install", "-y", "--no-install-recommends", *packages):
            raise errors.LabError(f"apt-get cannot install {names}: run `apt-get install {names}` to see why")


def unpack(package: str, folder: Path, report: Callable[[str], None]) -> None:
    """Extract a package into a folder without installing it, so that no service starts. Raises LabError."""
    report(f"fetching {package}")
    with tempfile.TemporaryDirectory() as download:
        place = Path(download)
        if not (
            _apt_get("download", package, folder=place)
            or (_apt_get("update") and _apt_get("download", package, folder=place))
        ):
            raise errors.LabError(f"apt-get cannot download {package}: run `apt-get download {package}` to see why")
        (archive,) = place.glob("*.deb")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True)


def _apt_get(*arguments: str, folder: Path | None = None) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Another process may hold the lock, such as tests that run in parallel.
    command = ["apt-get", "-o", f"DPkg::Lock::Timeout={_LOCKED_MAX_S}", *arguments]
    done = subprocess.run(command, capture_output=True, check=False, env=environment, cwd=folder)
    return done.returncode == 0
