"""Install Debian packages, or only unpack those that would start services."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from kube_nftlb import errors

_LOCKED_MAX_S = 120


def install(packages: list[str], report: Callable[[str], None]) -> None:
    """Install packages with apt-get. Raises LabError with the command to run if that is not possible.

    Only for packages without a service that Debian starts or enables; ``unpack`` is for the others.
    """
    names = " ".join(packages)
    _need_apt_get(names)
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
    _need_apt_get(package)
    report(f"fetching {package}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="unpack-") as work:
        download, extracted = Path(work, "download"), Path(work, "extracted")
        download.mkdir()
        if not (
            _apt_get("download", package, folder=download)
            or (_apt_get("update") and _apt_get("download", package, folder=download))
        ):
            raise errors.LabError(f"apt-get cannot download {package}: run `apt-get download {package}` to see why")
        (archive,) = download.glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", archive, extracted], check=True)
        # Moved into place only when complete; another process may have been faster.
        if not folder.exists():
            extracted.rename(folder)


def _need_apt_get(names: str) -> None:
    if shutil.which("apt-get") is None:
        raise errors.LabError(
            f"missing programs: install your distribution's equivalents of these Debian packages: {names}"
        )


def _apt_get(*arguments: str, folder: Path | None = None) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Another process may hold the lock, such as tests that run in parallel.
    command = ["apt-get", "-o", f"DPkg::Lock::Timeout={_LOCKED_MAX_S}", *arguments]
    done = subprocess.run(command, capture_output=True, check=False, env=environment, cwd=folder)
    return done.returncode == 0
