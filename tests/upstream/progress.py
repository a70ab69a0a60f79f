"""What the runs of upstream's tests tell whoever started them."""

import time

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
