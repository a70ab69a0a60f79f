"""The Python interface of a lab, for the command line, the functional tests and the benchmarks."""

import os
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from kube_nftlb import errors
from kube_nftlb.netfilter.namespaces import in_namespace
from lab import addresses, cni, components, control, launch, programs, versions
from lab.addresses import NodePlan
from lab.containers import images, probe
from lab.gateway import crds
from lab.metallb import build as metallb
from lab.metallb.plan import CONTROLLER
from lab.places import Places, host_pids, split_pod
from lab.routing import packages
from lab.routing.plan import plan_routers
from lab.state import LabFiles

_T = TypeVar("_T")
_CONTROL_S = 120.0
"""Longer than any component may take to stop."""


class Lab:
    """A running lab. ``Lab.up`` starts one, ``Lab(name)`` attaches to one; both raise LabError on failure."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._files = LabFiles.of(name)
        self._record = self._files.load()
        self._places = Places(self._files, self._record)

    @classmethod
    def up(
        cls,
        name: str,
        nodes: int = 2,
        zones: list[str] | None = None,
        proxy: str = "kube-nftlb",
        report: Callable[[str], None] = lambda _: None,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        runtime: str = components.NAMESPACES,
        operators: int = 1,
        kubernetes: str | None = None,
        routers: int = 0,
        gateway_api: bool = False,
        gateway_experimental: bool = False,
    ) -> "Lab":
        """Start a lab and wait until it is ready; ``report`` is called with a sentence at each step.

        ``settings`` has additional environment variables of operator, nftlb and agent, or flags of etcd, kube-proxy
        and kubelet, by component (``agent``) or by component and node (``agent@node-1``). ``runtime`` is
        ``namespaces``, or ``containerd`` for containers under a kubelet on each node. Several ``operators`` elect a
        leader; they are named ``operator``, ``operator-2`` and so on. ``kubernetes`` is a minor version
        (``versions.of``).
        ``gateway_api`` installs the CustomResourceDefinitions of the Gateway API, ``gateway_experimental`` those with
        the Gateways of the experimental channel. With ``routers``, the client is behind as many that speak BGP, and the
        nodes have BIRD.
        """
        files = LabFiles.of(name)
        addresses.plan_nodes(nodes, zones)
        plan_routers(routers)
        version = versions.of(kubernetes)
        found = programs.ensure(proxy, report, runtime, version)
        if cni.chosen() and runtime != components.CONTAINERS:
            programs.network_plugins(report)
        if cni.backend():
            found = {**found, **programs.flannel(report)}
        if routers:
            found = {**found, **packages.ensure(programs.cache_folder(), report)}
        snapshotter = ""
        if runtime == components.CONTAINERS:
            report("checking that this machine can run containers")
            snapshotter = probe.check(found["pause"], found["runc"], files.root.parent)
        launch.launch(
            files,
            nodes=nodes,
            zones=zones,
            proxy=proxy,
            kubernetes=version.full,
            runtime=runtime,
            snapshotter=snapshotter,
            operators=operators,
            routers=routers,
            programs=found,
            settings=settings or {},
            crds=[*_gateway_crds(gateway_api, gateway_experimental, report), *_crds_of_metallb(found)],
            report=report,
        )
        return cls(name)

    @staticmethod
    def remove(name: str) -> None:
        """Stop the lab of this name if it is running, and remove its files. Raises LabError if it does not stop."""
        launch.end(LabFiles.of(name))

    def down(self) -> None:
        """Stop the lab and remove its files."""
        self.remove(self.name)

    @property
    def nodes(self) -> list[NodePlan]:
        """The nodes with their names and addresses."""
        return addresses.plan_nodes(self._record.nodes, self._record.zones)

    @property
    def proxy(self) -> str:
        """The service proxy of this lab."""
        return self._record.proxy

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig for clients on the host."""
        return self._files.kubeconfig

    @property
    def inside_kubeconfig(self) -> Path:
        """The kubeconfig for programs started with ``exec``, which have it as $KUBECONFIG."""
        return self._files.inside_kubeconfig

    @property
    def bin(self) -> Path:
        """The folder that contains kubectl, and nftlb if it runs."""
        return Path(self._record.bin)

    def command(self, where: str, *argv: str) -> list[str]:
        """Return a host command that runs ``argv`` on a node, in a pod (``name``, ``namespace/name``) or on the client.

        It exits with the exit status of ``argv``, and passes termination on as SIGTERM. Raises LabError if there is no
        such place.
        """
        netns, mount_namespace = self._places.netns(where), self._places.mounts(where)
        user = ["--user", "--preserve-credentials"] if os.geteuid() != 0 else []
        mounts = f"--mount={mount_namespace}" if mount_namespace else "--mount"
        enter = ["nsenter", "--target", str(self._record.pid), *user, mounts, "--pid", f"--net={netns}"]
        # nsenter does not forward signals and stays outside as the parent.
        return [*enter, "--", "setpriv", "--pdeathsig", "TERM", "--", *argv]

    def environment(self, where: str) -> Mapping[str, str]:
        """Return the environment for ``command``. On a node, ``kube-nftlb nftlb`` uses that node's nftlb."""
        environment = components.base_environment(self._files, self.bin)
        if where in {node.name for node in self.nodes}:
            environment["KUBE_NFTLB_RUN_DIR"] = str(self._files.run(where))
        return environment

    def exec(
        self,
        where: str,
        *argv: str,
        input: str | None = None,  # noqa: A002 (as in subprocess)
        timeout_s: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and return its exit status and output.

        The limit is only there to end what hangs: programs start slowly on a busy machine. Raises
        subprocess.TimeoutExpired.
        """
        command, environment = self.command(where, *argv), self.environment(where)
        stdin = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False, **stdin
        )

    def popen(self, where: str, *argv: str) -> subprocess.Popen[str]:
        """Start a command with pipes as its standard input, output and error."""
        pipe = subprocess.PIPE
        command, environment = self.command(where, *argv), self.environment(where)
        return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def inside(self, where: str, function: Callable[[], _T]) -> _T:
        """Call a function of this process in the network namespace of a node, a pod or the client; requires root.

        Sockets that it opens stay there. Raises LabError if there is no such place, and any exception of the function.
        """
        return in_namespace(self._places.netns(where), function)

    def load_image(self, image: Path) -> None:
        """Import an image archive (as written by ``docker save``) on all nodes. Raises LabError."""
        if self._record.runtime != components.CONTAINERS:
            raise errors.LabError("this lab does not run containers: start it with `lab up --runtime containerd`")
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: images.load(self.command(node.name), image), self.nodes))

    def restart(self, component: str, node: str | None = None) -> None:
        """Stop a component (SIGTERM, SIGKILL after 5 s, for an agent 100 s) on a node or on all, then start it."""
        self._control("restart", component, node)

    def stop(self, component: str, node: str | None = None) -> None:
        """Stop a component until ``start``."""
        self._control("stop", component, node)

    def start(self, component: str, node: str | None = None) -> None:
        """Start a stopped component."""
        self._control("start", component, node)

    def pod(self, ready: bool, pod: str) -> None:
        """Set the Ready condition of a pod, as its readiness probe would."""
        namespace, name = split_pod(pod)
        control.call(self._files.kubelet_control, {"do": "ready", "ready": ready, "namespace": namespace, "name": name})

    def status(self) -> list[dict[str, Any]]:
        """Return all components with component, node, state, pid (on the host) and restarts."""
        entries: list[dict[str, Any]] = control.call(self._files.control, {"do": "status"})["components"]
        outside = host_pids(self._record.pid)
        return [{**entry, "pid": outside.get(entry["pid"])} for entry in entries]

    def pid(self, component: str, node: str | None = None) -> int:
        """Return the host PID of a running component. Raises LabError if it is not running."""
        for entry in self.status():
            if entry["component"] == component and node in (None, entry["node"]) and entry["pid"]:
                pid: int = entry["pid"]
                return pid
        raise errors.LabError(f"{component} {f'on {node} ' if node else ''}is not running")

    def log_path(self, component: str, node: str | None = None) -> Path:
        """Return the path of a component's log. Raises LabError if there is none."""
        path = self._files.log(component, node)
        if not path.exists():
            known = ", ".join(sorted(log.stem for log in self._files.logs.iterdir()))
            raise errors.LabError(f"no log {path.stem}; available: {known}")
        return path

    def _control(self, action: str, component: str, node: str | None) -> None:
        control.call(self._files.control, {"do": action, "component": component, "node": node}, _CONTROL_S)


def _crds_of_metallb(found: Mapping[str, Path]) -> list[Path]:
    return [metallb.crds(found[CONTROLLER].parent)] if CONTROLLER in found else []


def _gateway_crds(standard: bool, experimental: bool, report: Callable[[str], None]) -> list[Path]:
    if experimental:
        return [crds.ensure_experimental(report)]
    return [crds.ensure(report)] if standard else []
