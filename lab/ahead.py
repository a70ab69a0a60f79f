"""Begin with what takes longest, the programs of Kubernetes, while others prepare the rest.

``python3 -m lab.ahead [PROGRAM ...]`` needs nothing but Python, so that `make demo` can start it before there is a
virtual environment. Whoever needs the programs then calls ``programs.kubernetes``, which waits for this process and
shows how far it is, or does the same itself if this one failed, and says why. So this process says nothing.
"""

import signal
import sys
from types import FrameType

from kube_nftlb import errors
from lab import programs, versions


def _end(signum: int, _: FrameType | None) -> None:
    # As an exception, so that Go ends too.
    sys.exit(128 + signum)


def main() -> None:
    """Build what is missing of the programs named, by default those of every lab."""
    for each in (signal.SIGINT, signal.SIGTERM):
        # A shell has what it starts in the background ignore SIGINT.
        signal.signal(each, _end)
    try:
        programs.kubernetes(sys.argv[1:] or programs.KUBERNETES, versions.of(None), lambda _: None)
    except errors.LabError:
        sys.exit(1)


if __name__ == "__main__":
    main()
