"""FRR and BIRD from Debian, unpacked into the cache, with the libraries that they need."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kube_nftlb import errors
from lab import debian
from lab.progress import Report

BIRD: Final = "bird"
_PROGRAMS: Final = {
    "zebra": ("frr", "usr/lib/frr/zebra"),
    "bfdd": ("frr", "usr/lib/frr/bfdd"),
    "bgpd": ("frr", "usr/lib/frr/bgpd"),
    BIRD: ("bird2", "usr/sbin/bird"),
}
_LIBRARIES: Final = ("libyang2", "libssh-gcrypt-4", "libc-ares2", "libjson-c5", "libreadline8")


def ensure(cache: Path, report: Report) -> Mapping[str, Path]:
    """Return the programs; missing packages are downloaded. They are not installed, as Debian would start them.

    Raises LabError.
    """
    for package in {*(package for package, _ in _PROGRAMS.values()), *_LIBRARIES}:
        if not _folder(cache, package).exists():
            debian.unpack(package, _folder(cache, package), report)
    found = {name: _folder(cache, package) / path for name, (package, path) in _PROGRAMS.items()}
    if missing := [name for name, path in found.items() if not path.exists()]:
        raise errors.LabError(f"Debian's packages of this version lack {', '.join(missing)}")
    return found


def environment(programs: Mapping[str, Path]) -> dict[str, str]:
    """Return the variables with which these programs find their libraries."""
    cache = programs[BIRD].parents[3]
    triplet = f"{platform.machine()}-linux-gnu"
    folders = [_folder(cache.parent, package) / lib / triplet for package in _LIBRARIES for lib in ("usr/lib", "lib")]
    of_frr = _folder(cache.parent, "frr") / "usr/lib" / triplet / "frr"
    return {"LD_LIBRARY_PATH": os.pathsep.join(str(each) for each in (of_frr, *folders))}


def _folder(cache: Path, package: str) -> Path:
    return cache / "debian" / package
