"""``kube-nftlb krew``: the archive and the manifest by which krew installs ``kubectl nftlb``.

A plugin of krew is one archive without dependencies. Ours is a launcher for the Python package of the same version: an
installed one, or one that uv or pipx run.
"""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import yaml

from kube_nftlb import __version__, errors

ARCHIVE = "kubectl-nftlb.tar.gz"
MANIFEST = "nftlb.yaml"
_PROGRAM = "kubectl-nftlb"
_LICENSE = "LICENSE"

_LAUNCHER = """\
#!/bin/sh
# kubectl nftlb, installed by krew: runs the Python package kube-nftlb {version}.
version={version}
if command -v kube-nftlb >/dev/null; then
    exec kube-nftlb "$@"
elif command -v uvx >/dev/null; then
    exec uvx --quiet --from "kube-nftlb==$version" kubectl-nftlb "$@"
elif command -v pipx >/dev/null; then
    exec pipx run --spec "kube-nftlb==$version" kubectl-nftlb "$@"
fi
echo "kubectl nftlb needs the Python package kube-nftlb $version: install it with pip, or install uv or pipx" >&2
exit 2
"""


def write(directory: Path, url: str, license_file: Path) -> Path:
    """Write archive and manifest; ``url`` is where the archive will be. Return the manifest. Raises UsageError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        packed = archive(license_file.read_bytes())
        (directory / ARCHIVE).write_bytes(packed)
        path = directory / MANIFEST
        path.write_text(manifest(url, hashlib.sha256(packed).hexdigest()))
    except OSError as error:
        raise errors.UsageError(f"cannot write the plugin for krew: {error}") from error
    return path


def archive(license_text: bytes) -> bytes:
    """Return the archive, the same one each time. No I/O."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, data, mode in (
            (_PROGRAM, _LAUNCHER.format(version=__version__).encode(), 0o755),
            (_LICENSE, license_text, 0o644),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def manifest(url: str, sha256: str) -> str:
    """Return the manifest of the plugin. No I/O."""
    document = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "nftlb"},
        "spec": {
            "version": f"v{__version__}",
            "homepage": "https://github.com/zevenet/kube-nftlb",
            "shortDescription": "See and steer Services that kube-nftlb balances",
            "description": (
                "Shows what is wrong in a cluster with kube-nftlb, since when and what to do about it (status, why),\n"
                "what each node does with a Service (get), who has the traffic (top), drains backends and nodes with\n"
                "a countdown of open connections (drain, undrain), and collects what a bug report needs (sysdump).\n"
            ),
            "caveats": f"Needs the Python package kube-nftlb {__version__}, or uv or pipx to run it.\n",
            "platforms": [
                {
                    "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
                    "uri": url,
                    "sha256": sha256,
                    "files": [{"from": name, "to": "."} for name in (_PROGRAM, _LICENSE)],
                    "bin": _PROGRAM,
                }
            ],
        },
    }
    return yaml.safe_dump(document, sort_keys=False)
