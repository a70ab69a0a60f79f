"""Check that this machine can run containers, by running one."""

import json
import os
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

from kube_nftlb import errors
from lab.containers import cgroups

OVERLAYFS = "overlayfs"
NATIVE = "native"


def check(pause: Path, runc: Path, folder: Path) -> str:
    """Run a container briefly and return the containerd snapshotter that works below ``folder``.

    Raises LabError with what the machine lacks.
    """
    if os.geteuid() != 0:
        raise errors.LabError("this machine cannot run containers for a lab: it requires root")
    name = f"probe-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory(dir=folder, prefix="probe-") as bundle:
        try:
            cgroups.create(name, "probe")
        except OSError as error:
            raise errors.LabError(
                f"this machine cannot run containers: creating control groups failed: {error}"
            ) from error
        try:
            _run(pause, runc, Path(bundle), cgroups.name(name, "probe"))
        finally:
            cgroups.remove(name)
        return OVERLAYFS if _has_overlayfs(Path(bundle)) else NATIVE


def _run(pause: Path, runc: Path, bundle: Path, cgroup: str) -> None:
    root = bundle / "rootfs"
    root.mkdir()
    (root / "pause").write_bytes(pause.read_bytes())
    (root / "pause").chmod(0o755)
    subprocess.run([runc, "spec"], cwd=bundle, check=True, capture_output=True)
    path = bundle / "config.json"
    spec: dict[str, Any] = json.loads(path.read_text())
    spec["process"].update(args=["/pause"], terminal=False)
    spec["linux"]["cgroupsPath"] = f"/{cgroup}/container"
    path.write_text(json.dumps(spec))
    state = ["--root", str(bundle / "state")]
    log = bundle / "runc.log"
    done = _quiet([str(runc), *state, "--log", str(log), "run", "--detach", "probe"], bundle)
    _quiet([str(runc), *state, "delete", "--force", "probe"], bundle)
    if done != 0:
        lines = log.read_text().strip().splitlines() if log.exists() else []
        raise errors.LabError(f"this machine cannot run containers: {lines[-1] if lines else 'runc fails'}")


def _has_overlayfs(folder: Path) -> bool:
    for name in ("lower", "upper", "work", "merged"):
        (folder / name).mkdir()
    options = ",".join(f"{name}dir={folder / name}" for name in ("lower", "upper", "work"))
    mount = f"mount -t overlay -o '{options}' overlay '{folder / 'merged'}'"
    return _quiet(["unshare", "--mount", "sh", "-c", mount], folder) == 0


def _quiet(command: list[str], folder: Path) -> int:
    nothing = subprocess.DEVNULL
    return subprocess.run(command, cwd=folder, stdin=nothing, stdout=nothing, stderr=nothing, check=False).returncode
