"""Nothing that a lab takes from Debian starts a service on this machine, now or when it boots."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import build, debian, programs

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

_INFO = Path("/var/lib/dpkg/info")


@pytest.mark.parametrize("program", ["etcd", "nftlb"])
def test_a_program_whose_package_has_a_service_is_only_unpacked(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(shutil, "which", only_below(tmp_path))
    before = installed()
    found = programs.debians(program, print)
    assert found.is_relative_to(tmp_path / "kube-nftlb/debian")
    # Its libraries are those of the machine.
    assert subprocess.run([found, "--help"], capture_output=True, check=False).returncode in (0, 1)
    assert installed() == before
    # The next lab finds it, and fetches nothing.
    monkeypatch.setattr(debian, "unpack", None)
    assert programs.debians(program, print) == found


def test_no_package_that_is_installed_starts_a_service() -> None:
    tables = (programs.PACKAGES, *programs.PACKAGES_OF_PROXY.values(), programs.PACKAGES_WITH_CONTAINERS)
    named = {package for table in tables for package in table.values()} | set(build.NFTLB_NEEDS)
    names = named - {"util-linux"}  # essential: every Debian has it
    assert not names & set(programs.UNPACKED.values())
    scripts = {name: path.read_text() for name in names if (path := _INFO / f"{name}.postinst").exists()}
    assert "nftables" in scripts
    assert [name for name, text in scripts.items() if "_action=start" in text or "invoke-rc.d" in text] == []


def installed() -> dict[str, bytes]:
    """Return what dpkg knows of each package that labs only unpack; other tests may install others meanwhile."""
    query = ("dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}")
    names = programs.UNPACKED.values()
    return {name: subprocess.run([*query, name], capture_output=True, check=False).stdout for name in names}


def only_below(folder: Path) -> Callable[..., str | None]:
    """Programs of the machine are not found, but for apt-get."""
    which = shutil.which

    def found(program: str, path: str | None = None) -> str | None:
        return which(program, path=path) if program == "apt-get" or (path or "").startswith(str(folder)) else None

    return found
