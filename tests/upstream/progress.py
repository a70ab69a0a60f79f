"""What the runs of upstream's tests tell whoever started them."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from lab.lab import Lab


def say(step: str) -> None:
    """Print a step with the time."""
    print(f"{time.strftime('%H:%M:%S')} {step}", flush=True)


def hold(lab: Lab) -> None:
    """Say how to reach a cluster, and return on Ctrl-C."""
    say(f"ready: export KUBECONFIG={lab.kubeconfig}; kube-nftlb lab --name {lab.name} exec client -- ...")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return


def make(module: str, description: str | None, write: Callable[[Path, Path], Path]) -> None:
    """Do what a module's command line says: ``write`` the page of a folder of records into that of pages."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    arguments = parser.parse_args()
    print(write(arguments.folder, arguments.docs))
