"""The places of a running lab, seen from the host: the namespaces of nodes, pods and the client."""

import contextlib
from pathlib import Path

from kube_nftlb import errors
from lab import addresses, components
from lab.routing.plan import plan_routers
from lab.state import LabFiles, LabRecord

CLIENT = "client"
SWITCH = "switch"
"""Where the links of nodes and client come together, and the control plane is."""


class Places:
    """Find the namespaces of a node, a pod (``name`` or ``namespace/name``) or the client."""

    def __init__(self, files: LabFiles, record: LabRecord) -> None:
        self._files = files
        self._record = record
        self._nodes = [node.name for node in addresses.plan_nodes(record.nodes, record.zones)]
        self._routers = [router.name for router in plan_routers(record.routers)]

    def netns(self, where: str) -> Path:
        """Return the file of a network namespace. Raises LabError if there is no such place."""
        if where == SWITCH:
            return Path(f"/proc/{self._record.pid}/ns/net")
        path = self._inside(self._netns(where))
        if not path.exists():
            others = ", ".join([*self._nodes, *self._routers, CLIENT])
            raise errors.LabError(f"no running pod {where!r}; other places: {others}")
        return path

    def mounts(self, where: str) -> Path | None:
        """Return the file of a node's own mount namespace, or None if it shares the lab's."""
        if self._record.runtime != components.CONTAINERS or where not in self._nodes:
            return None
        return self._inside(self._files.mounts(where))

    def _inside(self, path: Path) -> Path:
        # The host sees the mounts of the lab under the root of its first process.
        return Path(f"/proc/{self._record.pid}/root{path}")

    def _netns(self, where: str) -> Path:
        if where in (CLIENT, *self._nodes, *self._routers):
            return self._files.netns / where
        return self._files.pod_netns(*split_pod(where))


def split_pod(pod: str) -> tuple[str, str]:
    """Return namespace and name of a pod given as ``name`` or ``namespace/name``."""
    namespace, _, name = pod.rpartition("/")
    return namespace or "default", name


def host_pids(supervisor: int) -> dict[int, int]:
    """Map the PIDs of the supervisor's children in the lab to their PIDs on the host."""
    pids = {}
    for children in Path(f"/proc/{supervisor}/task").glob("*/children"):
        for pid in children.read_text().split():
            # It may have exited.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = Path(f"/proc/{pid}/status").read_text()
                numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
                pids[int(numbers[-1])] = int(pid)
    return pids
