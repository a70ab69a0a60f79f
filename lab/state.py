"""The files of a lab, and the lock that shows if it is running."""

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from kube_nftlb import errors


@dataclass(frozen=True)
class LabRecord:
    """The facts about a lab recorded at its start."""

    nodes: int
    zones: list[str] | None
    proxy: str
    bin: str  # the folder that contains kubectl, and nftlb if it runs
    pid: int  # the supervisor's, on the host
    kubernetes: str  # the version in full
    runtime: str = "namespaces"  # how pods run, one of components.RUNTIMES
    routers: int = 0  # between the nodes and the client


@dataclass(frozen=True)
class LabFiles:
    """The files of one lab, all below ``root``."""

    root: Path

    @classmethod
    def of(cls, name: str) -> "LabFiles":
        """Return the files of the lab with this name. Raises LabError for an invalid name."""
        if not name or not all(letter.isalnum() or letter in "-_" for letter in name):
            raise errors.LabError(f"a lab's name may have letters, digits, - and _ only, not {name!r}")
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return cls(Path(base).absolute() / "kube-nftlb" / "labs" / name)

    @property
    def lock(self) -> Path:
        """Locked by the supervisor while it lives."""
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
        """The socket of the kubelet stand-in."""
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
        """Return the kubeconfig of a component of kube-nftlb, with its own permissions."""
        return self.secrets / (f"kubeconfig-{component}-{node}" if node else f"kubeconfig-{component}")

    @property
    def logs(self) -> Path:
        """One file per component, or per component and node."""
        return self.root / "logs"

    @property
    def bin(self) -> Path:
        """Links to programs, for users."""
        return self.root / "bin"

    @property
    def secrets(self) -> Path:
        """Certificates, keys, tokens."""
        return self.root / "secrets"

    @property
    def etcd(self) -> Path:
        """The data of etcd; a tmpfs."""
        return self.root / "etcd"

    @property
    def netns(self) -> Path:
        """The mounted network namespaces; a tmpfs visible only in the lab's mount namespace."""
        return self.root / "netns"

    def node(self, node: str) -> Path:
        """Return the folder of a node's configuration, images and containers (runtime containerd)."""
        return self.root / "nodes" / node

    @property
    def flannel(self) -> Path:
        """The folder of flannel's configuration, and of what its daemons write."""
        return self.root / "flannel"

    def flannel_subnets(self, node: str) -> Path:
        """Return the file that flannel's daemon writes once the node is connected."""
        return self.flannel / f"{node}.env"

    @property
    def flannel_network(self) -> Path:
        """Flannel's configuration of the network."""
        return self.flannel / "net-conf.json"

    def router(self, name: str) -> Path:
        """Return the folder of a router's configuration."""
        return self.root / "routers" / name

    @property
    def bird_secret(self) -> Path:
        """The folder with the passwords of BGP sessions, as a mounted Secret."""
        return self.root / "routers" / "secret"

    @property
    def metallb_secret(self) -> Path:
        """The folder with the key of MetalLB's speakers, as a mounted Secret."""
        return self.secrets / "metallb"

    @property
    def pause_image(self) -> Path:
        """The archive of the image whose process holds a pod's namespaces."""
        return self.root / "nodes" / "pause.tar"

    def containerd_config(self, node: str) -> Path:
        """Return the configuration file of a node's containerd."""
        return self.node(node) / "containerd.toml"

    def kubelet_config(self, node: str) -> Path:
        """Return the configuration file of a node's kubelet."""
        return self.node(node) / "kubelet.json"

    def mounts(self, node: str) -> Path:
        """Return the mount namespace of a node's containerd and kubelet."""
        return self.netns / f"{node}~mounts"

    def host_name(self, node: str) -> Path:
        """Return the UTS namespace of a node's containerd and kubelet, which has the node's name."""
        return self.netns / f"{node}~uts"

    def run(self, node: str) -> Path:
        """Return the folder shared by agent and nftlb of a node."""
        return self.root / "run" / node

    def log(self, component: str, node: str | None) -> Path:
        """Return the log file of a component."""
        return self.logs / (f"{component}-{node}.log" if node else f"{component}.log")

    def save(self, record: LabRecord) -> None:
        """Write the record."""
        self.record.write_text(json.dumps(asdict(record)))

    def load(self) -> LabRecord:
        """Return the record of a running lab. Raises LabError if it is not running."""
        if self.is_free() or not self.record.exists():
            raise errors.LabError(f"the lab {self.root.name!r} is not running: start it with `kube-nftlb lab up`")
        return self.read_record()

    def read_record(self) -> LabRecord:
        """Return the record; for use inside the lab."""
        return LabRecord(**json.loads(self.record.read_text()))

    def is_free(self) -> bool:
        """Return True if no supervisor holds the lock."""
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
        """Create the folder, lock it, and return the lock's file descriptor. Raises LabError if the lab is running."""
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
        """Return a pod's network namespace. Namespace names have no dot, so the names are unique."""
        return self.netns / f"{namespace}.{name}"
