"""The archive and the manifest by which krew installs ``kubectl nftlb``.

A plugin of krew is one archive without dependencies. Ours has the Python package of the same version as a wheel, and a
launcher that has uv or pipx run it, unless the package is installed.
"""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import yaml

from kube_nftlb import __version__

ARCHIVE = "kubectl-nftlb.tar.gz"
MANIFEST = "nftlb.yaml"
_PROGRAM = "kubectl-nftlb"
_LICENSE = "LICENSE"

_LAUNCHER = """\
#!/bin/sh
# kubectl nftlb, installed by krew: runs the Python package kube-nftlb {version}.
version={version}
own="$0"
while [ -L "$own" ]; do
    to=$(readlink "$own")
    case "$to" in /*) own="$to" ;; *) own="${{own%/*}}/$to" ;; esac
done
wheel="${{own%/*}}/{wheel}"
if command -v kube-nftlb >/dev/null; then
    exec kube-nftlb "$@"
elif command -v uvx >/dev/null; then
    exec uvx --quiet --from "$wheel" kubectl-nftlb "$@"
elif command -v pipx >/dev/null; then
    exec pipx run --spec "$wheel" kubectl-nftlb "$@"
fi
echo "kubectl nftlb needs uv or pipx, or the Python package kube-nftlb $version, such as: pip install $wheel" >&2
exit 3
"""


def write(directory: Path, url: str, wheel: Path, license_file: Path, homepage: str = "") -> Path:
    """Write archive and manifest; ``url`` is where the archive will be. Return the manifest. Raises OSError.

    ``homepage`` is the repository that publishes it; empty if there is none.
    """
    directory.mkdir(parents=True, exist_ok=True)
    packed = archive(wheel.name, wheel.read_bytes(), license_file.read_bytes())
    (directory / ARCHIVE).write_bytes(packed)
    path = directory / MANIFEST
    path.write_text(manifest(url, hashlib.sha256(packed).hexdigest(), wheel.name, homepage))
    return path


def archive(wheel: str, package: bytes, license_text: bytes) -> bytes:
    """Return the archive, the same one each time; ``wheel`` is the name of the file with the package. No I/O."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, data, mode in (
            (_PROGRAM, _LAUNCHER.format(version=__version__, wheel=wheel).encode(), 0o755),
            (wheel, package, 0o644),
            (_LICENSE, license_text, 0o644),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def manifest(url: str, sha256: str, wheel: str, homepage: str) -> str:
    """Return the manifest of the plugin. No I/O."""
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "nftlb"},
        "spec": {
            "version": f"v{__version__}",
            **({"homepage": homepage} if homepage else {}),
            "shortDescription": "See and steer Services that kube-nftlb balances",
            "description": (
                "Shows what is wrong in a cluster with kube-nftlb, since when and what to do about it (status, why),\n"
                "what each node does with a Service (get) and with a connection (trace), who has the traffic (top),\n"
                "drains backends and nodes with a countdown of open connections (drain, undrain), and collects what a\n"
                "bug report needs (sysdump).\n"
            ),
            "caveats": "Needs uv or pipx, which fetch the Python packages that it uses, or the installed package.\n",
            "platforms": [
                {
                    "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
                    "uri": url,
                    "sha256": sha256,
                    "files": [{"from": name, "to": "."} for name in (_PROGRAM, wheel, _LICENSE)],
                    "bin": _PROGRAM,
                }
            ],
        },
    }
    return yaml.safe_dump(document, sort_keys=False)
