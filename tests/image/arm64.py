"""Compare the image for arm64 with that for amd64, and start arm64's programs under qemu.

``python -m tests.image.arm64`` takes root, and minutes. The image is not built, since the Dockerfile's steps would need
binfmt_misc of this machine. Instead: every Debian package that the Dockerfile installs must exist for both in one
version, every wheel of requirements-image.lock must exist for arm64, and the last stage's programs are unpacked into a
folder and started there. nftlb is Debian's there, without our patches.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lab import debian, programs
from tests.image.build import CHECKOUT

SUITE = "trixie"
PYTHON = "313"
"""The version of Debian's python3 in that suite, as wheels name it."""
BASE = ("base-files", "bash", "coreutils")
"""The packages of Debian's own image that the Dockerfile relies on; the others follow from what is installed."""
SITE = f"opt/kube-nftlb/lib/python3.{PYTHON[1:]}/site-packages"
_INSTALL = re.compile(r"apt-get install -y --no-install-recommends ((?:[^&\n\\]|\\\n)+)")


def stages() -> list[list[str]]:
    """Return the Debian packages that each stage of the Dockerfile installs; the last is the image's."""
    text = (CHECKOUT / "Dockerfile").read_text()
    return [[word for word in found.split() if word != "\\"] for found in _INSTALL.findall(text)]


class Apt:
    """apt-get for an architecture, with lists of its own."""

    def __init__(self, folder: Path, architecture: str) -> None:
        for each in ("lists/partial", "cache/archives/partial"):
            (folder / each).mkdir(parents=True)
        keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
        source = folder / "sources.list"
        source.write_text(f"deb [signed-by={keyring} arch={architecture}] http://deb.debian.org/debian {SUITE} main\n")
        self._folder = folder
        self._options = [
            option
            for key, value in {
                "APT::Architecture": architecture,
                "APT::Architectures": architecture,
                "APT::Sandbox::User": "root",
                "Dir::Etc::SourceList": source,
                "Dir::Etc::SourceParts": "/dev/null",
                "Dir::State::Lists": folder / "lists",
                "Dir::State::status": "/dev/null",
                "Dir::Cache": folder / "cache",
                "Acquire::Retries": 8,
            }.items()
            for option in ("-o", f"{key}={value}")
        ]
        self._run("update")

    def versions(self, packages: list[str]) -> dict[str, str]:
        """Return the versions of packages and of all that they depend on. Builds of one source count as one version."""
        simulated = self._run("install", "--simulate", "--no-install-recommends", *packages)
        found = re.findall(r"^Inst (\S+) \((\S+)", simulated, re.MULTILINE)
        return {name: re.sub(r"\+b\d+$", "", version) for name, version in found}

    def unpack(self, packages: list[str], root: Path) -> None:
        """Extract packages and all that they depend on. No script of theirs runs."""
        self._run("install", "--download-only", "-y", "--no-install-recommends", *packages)
        for archive in sorted(
            (self._folder / "cache/archives").glob("*.deb"), key=lambda path: "base-files" not in path.name
        ):
            subprocess.run(["dpkg-deb", "--extract", archive, root], check=True)

    def _run(self, *arguments: str) -> str:
        return _output("apt-get", "-qq", *self._options, *arguments)


def compare(folder: Path) -> Apt:
    """Compare the packages of all stages. Return the apt-get for arm64. Exits with a sentence if they differ."""
    amd64, arm64 = (Apt(folder / architecture, architecture) for architecture in ("amd64", "arm64"))
    for number, packages in enumerate(stages(), 1):
        ours, theirs = (apt.versions(packages) for apt in (amd64, arm64))
        # Compilers have the architecture in the names of their parts.
        names = (
            {re.sub(r"x86[-_]64|amd64", "ARCH", name) for name in ours},
            {re.sub(r"aarch64|arm64", "ARCH", name) for name in theirs},
        )
        if differing := sorted(name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]):
            sys.exit(f"stage {number}: other versions for arm64: {', '.join(differing)}")
        only = sorted(names[0] ^ names[1])
        print(f"stage {number}: {len(theirs)} packages, in the versions of amd64; only for one of them: {only}")
    return arm64


def wheels(root: Path) -> None:
    """Install the locked wheels for arm64, and kube_nftlb."""
    platforms = [f"--platform=manylinux{each}_aarch64" for each in ("_2_17", "_2_28", "2014")]
    tags = [
        *platforms,
        "--python-version",
        PYTHON,
        "--implementation",
        "cp",
        "--abi",
        f"cp{PYTHON}",
        "--abi",
        "abi3",
        "--abi",
        "none",
    ]
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes")
    _output(*pip, *tags, "-r", str(CHECKOUT / "requirements-image.lock"), "--target", str(root / SITE))
    shutil.copytree(CHECKOUT / "kube_nftlb", root / SITE / "kube_nftlb", ignore=shutil.ignore_patterns("__pycache__"))
    print(f"wheels: {len(list((root / SITE).glob('*.dist-info')))} for arm64, each with a hash of the lock file")


def start(qemu: Path, root: Path) -> None:
    """Start the programs under qemu, and print what they say. They start no others, so qemu runs each by itself."""
    shutil.copy(qemu, root / "qemu")
    shutil.copy(CHECKOUT / "examples/my-service.yaml", root / "service.yaml")
    python = ("/usr/bin/python3", "-m", "kube_nftlb")
    for words in (
        ("/usr/sbin/nft", "--version"),
        ("/usr/sbin/nftlb", "-h"),
        (*python, "--help"),
        (*python, "render", "-f", "/service.yaml", "-o", "farms"),
        (*python, "agent"),
    ):
        done = subprocess.run(
            ["chroot", root, "/qemu", *words],
            env={"HOME": "/", "PATH": "/usr/sbin:/usr/bin", "PYTHONPATH": f"/{SITE}", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = (done.stdout + done.stderr).strip().splitlines()
        # Of a traceback the end tells most.
        told = lines[-2:] if done.returncode else lines[:3]
        print(f"{' '.join(words)}: exit status {done.returncode}: {told}")


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:3])} ... failed: {done.stderr[-2000:]}")
    return done.stdout


def main() -> None:
    """Do all of it."""
    emulators = programs.cache_folder() / "qemu"
    if not (qemu := emulators / "usr/bin/qemu-aarch64-static").exists():
        debian.unpack("qemu-user-static", emulators, print)
    with tempfile.TemporaryDirectory(dir=programs.cache_folder()) as folder:
        arm64 = compare(Path(folder))
        root = Path(folder, "root")
        root.mkdir()
        arm64.unpack([*BASE, *stages()[-1], "nftlb"], root)
        wheels(root)
        start(qemu, root)


if __name__ == "__main__":
    main()
