"""Images for the nodes of a lab, which do not pull from registries."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from kube_nftlb import errors
from lab import programs
from lab.containers import config

_TIMEOUT_S = 60


def load(enter: Sequence[str], image: Path) -> None:
    """Import an image archive into a node's containerd, once that is reachable. Raises LabError.

    ``enter`` is the command prefix that runs a command on the node.
    """
    ctr = str(programs.find("ctr") or "ctr")
    command = [*enter, ctr, f"--address={config.SOCKET}", "--namespace=k8s.io", "images", "import", str(image)]
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if "dial" not in done.stderr or time.monotonic() > deadline:
            raise errors.LabError(f"containerd cannot import {image}: {done.stderr.strip()}")
        time.sleep(0.1)
