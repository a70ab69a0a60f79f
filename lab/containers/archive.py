"""Single-program images as archives for ``ctr images import``. Computation only."""

import hashlib
import io
import json
import platform
import tarfile
from typing import Any

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def of_program(program: bytes, tag: str) -> bytes:
    """Return an image archive, as written by ``docker save``, that runs one statically linked program."""
    layer = _tar({"pause": program}, mode=0o755)
    machine = platform.machine()
    config: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
    files = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    return _tar(files, mode=0o644)


def _tar(files: dict[str, bytes], *, mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
