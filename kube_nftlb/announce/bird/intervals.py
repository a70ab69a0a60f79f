"""The intervals of BFD that routers ask for, in a file that outlives the pod: the next BIRD waits by them."""

import json
from collections.abc import Mapping
from pathlib import Path

from kube_nftlb import files


class IntervalsFile:
    """The interval that was negotiated last with each router, by its address."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, int]:
        """Return the intervals; none if the file does not exist, or cannot be read."""
        try:
            return {str(ip): int(interval) for ip, interval in json.loads(self._path.read_text()).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def write(self, intervals_ms: Mapping[str, int]) -> None:
        """Write the intervals. Raises OSError."""
        files.replace(self._path, json.dumps(intervals_ms))
