"""A liveness probe of nftlb for the kubelet, which runs it often: without packages that take long to load.

``python3 -m kube_nftlb.nftlb.liveness`` exits with 0 if nftlb answers, else with 1 and a message.
"""

import http.client
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kube_nftlb import errors
from kube_nftlb.nftlb import loading

_TIMEOUT_S = 15


class Place(NamedTuple):
    """The settings that a probe needs."""

    port: int
    key_file: Path
    startup_file: Path


def place(environ: Mapping[str, str]) -> Place:
    """Return what ``NftlbSettings`` has, without pydantic, whose import doubles the processor time of a probe."""
    run_dir = environ.get("KUBE_NFTLB_RUN_DIR") or "/run/kube-nftlb"
    state_dir = environ.get("KUBE_NFTLB_STATE_DIR") or run_dir
    port = environ.get("KUBE_NFTLB_NFTLB_PORT") or "5555"
    return Place(int(port), Path(run_dir) / "nftlb.key", Path(state_dir) / "nftlb.json")


def ask(port: int, key_file: Path) -> None:
    """Request a farm that does not exist, nftlb's cheapest answer. Raises NftlbUnreachableError."""
    try:
        key = key_file.read_text().strip()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", "/farms/-", headers={"Key": key})
            connection.getresponse().read()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise errors.NftlbUnreachableError(f"nftlb does not answer on 127.0.0.1:{port}: {errors.why(error)}") from error


def main() -> int:
    """Probe nftlb as set in the environment. Return the exit status."""
    try:
        nftlb = place(os.environ)
        ask(nftlb.port, nftlb.key_file)
        loading.done(nftlb.startup_file)
    except OSError as error:
        print(f"cannot rename nftlb's start-up file: {error}", file=sys.stderr)
    except errors.KubeNftlbError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
