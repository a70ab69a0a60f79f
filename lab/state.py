"""Where a lab keeps its files, and whether it runs."""

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from kube_nftlb import errors


@dataclass(frozen=True)
class LabRecord:
    """What is written down about a lab when it starts."""

    nodes: int
    zones: list[str] | None
    proxy: str
    bin: str  # the folder with kubectl
    pid: int  # the supervisor's, as the host sees it
    runtime: str = "namespaces"  # what pods are made of, one of components.RUNTIMES


@dataclass(frozen=True)
class LabFiles:
    """The files of one lab; all of them are below ``root``."""

    root: Path

    @classmethod
    def of(cls, name: str) -> "LabFiles":
        """The files of the lab with this name. Raises LabError for a name that cannot be a folder's."""
        if not name or not all(letter.isalnum() or letter in "-_" for letter in name):
            raise errors.LabError(f"a lab's name has letters, digits, - and _ only, not {name!r}")
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return cls(Path(base).absolute() / "kube-nftlb" / "labs" / name)

    @property
    def lock(self) -> Path:
        """Locked by the supervisor for as long as it lives."""
        return self.root / "lock"

    @property
    def record(self) -> Path:
        """The LabRecord as JSON."""
        return self.root / "lab.json"

    @property
    def control(self) -> Path:
        """The supervisor's socket."""
        return self.root / "control.sock"

    @property
    def kubelet_control(self) -> Path:
        """The kubelet stand-in's socket."""
        return self.root / "kubelet.sock"

    @property
    def kubeconfig(self) -> Path:
        """For programs on the host."""
        return self.root / "kubeconfig"

    @property
    def inside_kubeconfig(self) -> Path:
        """For programs in the lab's namespaces."""
        return self.root / "kubeconfig-inside"

    def kubeconfig_of(self, component: str, node: str | None) -> Path:
        """For a program of kube-nftlb's, with its own rights."""
        return self.secrets / (f"kubeconfig-{component}-{node}" if node else f"kubeconfig-{component}")

    @property
    def logs(self) -> Path:
        """One file for each component, or for each component and node."""
        return self.root / "logs"

    @property
    def secrets(self) -> Path:
        """Certificates, keys, tokens."""
        return self.root / "secrets"

    @property
    def etcd(self) -> Path:
        """etcd's data; a tmpfs."""
        return self.root / "etcd"

    @property
    def netns(self) -> Path:
        """The mounted network namespaces; a tmpfs that only the lab's mount namespace shows."""
        return self.root / "netns"

    def node(self, node: str) -> Path:
        """A node's configuration, images and containers, with the runtime containerd."""
        return self.root / "nodes" / node

    @property
    def pause_image(self) -> Path:
        """The image of the process that holds a pod's namespaces."""
        return self.root / "nodes" / "pause.tar"

    def containerd_config(self, node: str) -> Path:
        """What a node's containerd is told."""
        return self.node(node) / "containerd.toml"

    def kubelet_config(self, node: str) -> Path:
        """What a node's kubelet is told."""
        return self.node(node) / "kubelet.json"

    def mounts(self, node: str) -> Path:
        """The mount namespace of a node's containerd and kubelet."""
        return self.netns / f"{node}~mounts"

    def run(self, node: str) -> Path:
        """What the agent and the nftlb of one node share."""
        return self.root / "run" / node

    def log(self, component: str, node: str | None) -> Path:
        """A component's log."""
        return self.logs / (f"{component}-{node}.log" if node else f"{component}.log")

    def save(self, record: LabRecord) -> None:
        """Write the record down."""
        self.record.write_text(json.dumps(asdict(record)))

    def load(self) -> LabRecord:
        """The record of a running lab. Raises LabError when it does not run."""
        if self.is_free() or not self.record.exists():
            raise errors.LabError(f"the lab {self.root.name!r} is not running: start it with `kube-nftlb lab up`")
        return self.read_record()

    def read_record(self) -> LabRecord:
        """The record, from inside the lab."""
        return LabRecord(**json.loads(self.record.read_text()))

    def is_free(self) -> bool:
        """Whether no supervisor holds the lock."""
        if not self.lock.exists():
            return True
        descriptor = os.open(self.lock, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def take(self) -> int:
        """Create the folder and lock it; the lock is held by the descriptor returned. Raises LabError when it runs."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise errors.LabError(
                f"the lab {self.root.name!r} is running already: stop it with `kube-nftlb lab down`, "
                "or choose another --name"
            ) from None
        return descriptor

    def pod_netns(self, namespace: str, name: str) -> Path:
        """A pod's network namespace. A namespace's name has no dot, so no two pods meet here."""
        return self.netns / f"{namespace}.{name}"
