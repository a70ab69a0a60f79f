"""The components of a lab: command, environment and node of each. Computation only."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kube_nftlb.announce.bird.process import AGENT_ENDS_S
from lab import flags
from lab.addresses import NodePlan
from lab.flannel import config as flannel
from lab.metallb import plan as metallb
from lab.routing import packages, plan
from lab.routing.plan import RouterPlan
from lab.state import LabFiles

ETCD = "etcd"
API_SERVER = "apiserver"
CONTROLLER_MANAGER = "controller-manager"
KUBELET = "kubelet"
OPERATOR = "operator"
AGENT = "agent"
NFTLB = "nftlb"
RESPONDER = "responder"
BIRD = packages.BIRD
KUBE_PROXY = "kube-proxy"
BESIDE = "+kube-nftlb"
"""The end of the names of proxies that run while nftlb and the agents wait to be started."""
WITH_METALLB = "+metallb"
"""A part of the names of those beside which MetalLB assigns and announces addresses."""
SCHEDULER = "scheduler"
CONTAINERD = "containerd"
FLANNEL = "flanneld"

NAMESPACES = "namespaces"
"""Pods are network namespaces with a test server each; a stand-in acts as kubelet and scheduler."""
CONTAINERS = "containerd"
"""Pods are containers; each node has its own kubelet, containerd and runc."""
RUNTIMES = (NAMESPACES, CONTAINERS)
CNI_PLUGINS = "/usr/lib/cni"
"""Where Debian has the CNI plugins of CONTAINERS."""


ADDRESSES = "KUBE_NFTLB_ADDRESSES"
"""The setting of agents by which they announce addresses, and have a responder."""
BGP = "KUBE_NFTLB_BGP"
"""The setting of agents by which they announce by BGP, and have a BIRD in a lab with routers."""
_BIRD_GRACE_S = AGENT_ENDS_S + 5
"""It waits for the agent to end."""
_AGENT_GRACE_S = 100.0
"""It waits for the proxy that takes over from it."""


@dataclass(frozen=True)
class Component:
    """A program that the supervisor keeps running, on a node or (``node`` None) in the control plane's namespace."""

    name: str
    node: str | None
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    started: bool = True
    """True if it runs from the beginning, and not only once it is started by hand."""
    grace_s: float = 5.0
    """Maximum time in seconds to end after SIGTERM."""


@dataclass(frozen=True)
class Blueprint:
    """The requested lab."""

    files: LabFiles
    nodes: list[NodePlan]
    proxy: str
    programs: Mapping[str, Path]
    operators: int = 1
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Additional environment variables (etcd, kube-proxy, kubelet: flags) by component (``agent``), or on one node
    (``agent@node-1``).
    """
    runtime: str = NAMESPACES
    """The runtime of pods, one of RUNTIMES."""
    bgp_routers: list[RouterPlan] = field(default_factory=list)
    crds: Sequence[Path] = ()
    """Folders with further CustomResourceDefinitions, which are installed before anything of kube-nftlb starts."""

    def control_plane(self) -> list[Component]:
        """Return etcd and the API server, in start order."""
        return [self._etcd(), self._api_server()]

    def controllers(self) -> list[Component]:
        """Return the controllers, and the kubelet stand-in or scheduler and containerd."""
        if self.runtime == NAMESPACES:
            return [self._controller_manager(), self._module(KUBELET, "lab.kubelet", str(self.files.root))]
        return [
            self._controller_manager(),
            self._scheduler(),
            *(self._containerd(node) for node in self.nodes),
        ]

    def kubelets(self) -> list[Component]:
        """Return the kubelets, which need a running containerd; none for NAMESPACES."""
        return [] if self.runtime == NAMESPACES else [self._kubelet(node) for node in self.nodes]

    def routers(self) -> list[Component]:
        """Return flannel's daemons, which connect the nodes once their Nodes exist; none where the lab does it."""
        return [self._flannel(node) for node in self.nodes] if FLANNEL in self.programs else []

    def frr(self) -> list[Component]:
        """Return the daemons of the routers between nodes and client, zebra first."""
        found = []
        for router in self.bgp_routers:
            folder = str(self.files.router(router.name))
            for daemon in plan.DAEMONS:
                argv = plan.command(router, daemon, str(self.programs[daemon]), folder)
                found.append(Component(daemon, router.name, argv, packages.environment(self.programs)))
        return found

    def operators_and_daemons(self) -> list[Component]:
        """Return the operators and nftlb daemons, which can start before the nodes exist."""
        if not self.has_kube_nftlb:
            return []
        operators = [self._operator(number) for number in range(1, self.operators + 1)]
        daemons = [self._kube_nftlb(NFTLB, "nftlb-daemon", node, self._node_environment(node)) for node in self.nodes]
        announcing = [node for node in self.nodes if self._settings(AGENT, node).get(ADDRESSES) == "on"]
        birds = [self._bird(node) for node in announcing if self._has_bird(node)]
        return [*operators, *self._waiting([*daemons, *map(self._responder, announcing), *birds])]

    def proxies(self) -> list[Component]:
        """Return the service proxies of all nodes; empty for the proxy ``none``."""
        agents = [
            replace(self._kube_nftlb(AGENT, "agent", node, self._node_environment(node)), grace_s=_AGENT_GRACE_S)
            for node in self.nodes
        ]
        if self.proxy == "kube-nftlb":
            return agents
        if self.proxy.startswith(KUBE_PROXY):
            proxies = [self._kube_proxy(node) for node in self.nodes]
            return [*proxies, *self._waiting(agents)] if self.has_kube_nftlb else proxies
        return []

    def announcers(self) -> list[Component]:
        """Return MetalLB's programs, which look for their Pods when they start; none in a lab without them."""
        if metallb.CONTROLLER not in self.programs:
            return []
        arguments, environment = metallb.controller()
        return [
            self._announcer(metallb.CONTROLLER, None, environment, *arguments),
            *(self._announcer(metallb.SPEAKER, node, self._of_speaker(node)) for node in self.nodes),
        ]

    @property
    def has_kube_nftlb(self) -> bool:
        """True if there is an operator, and each node has an agent, which may have to be started."""
        return self.proxy == "kube-nftlb" or self.proxy.endswith(BESIDE)

    def _waiting(self, of_nodes: list[Component]) -> list[Component]:
        """Return components that wait to be started where another proxy runs."""
        return [replace(each, started=self.proxy == "kube-nftlb") for each in of_nodes]

    def all(self) -> list[Component]:
        """Return all components in start order."""
        return [
            *self.control_plane(),
            *self.controllers(),
            *self.kubelets(),
            *self.routers(),
            *self.frr(),
            *self.operators_and_daemons(),
            *self.proxies(),
            *self.announcers(),
        ]

    def _etcd(self) -> Component:
        return Component(ETCD, None, self._command("etcd", {**flags.etcd(self.files), **self._settings(ETCD, None)}))

    def _api_server(self) -> Component:
        own = {**flags.api_server(self.files), **self._settings(API_SERVER, None)}
        return Component(API_SERVER, None, self._command("kube-apiserver", own))

    def _controller_manager(self) -> Component:
        own = flags.controller_manager(self.files, with_containers=self.runtime == CONTAINERS)
        return Component(CONTROLLER_MANAGER, None, self._command("kube-controller-manager", own))

    def _scheduler(self) -> Component:
        return Component(SCHEDULER, None, self._command("kube-scheduler", flags.scheduler(self.files)))

    def _containerd(self, node: NodePlan) -> Component:
        own = {"config": str(self.files.containerd_config(node.name))}
        return Component(CONTAINERD, node.name, (*self.enter(node), *self._command("containerd", own)))

    def _flannel(self, node: NodePlan) -> Component:
        own = flannel.flags(
            kubeconfig=str(self.files.inside_kubeconfig),
            network_file=str(self.files.flannel_network),
            subnet_file=str(self.files.flannel_subnets(node.name)),
        )
        return Component(FLANNEL, node.name, self._command(FLANNEL, own), {"NODE_NAME": node.name})

    def _kubelet(self, node: NodePlan) -> Component:
        argv = self._command("kubelet", {**flags.kubelet(self.files, node), **self._settings(KUBELET, node)})
        return Component(KUBELET, node.name, (*self.enter(node), *argv))

    def enter(self, node: NodePlan) -> tuple[str, ...]:
        """Return the command prefix that enters the mount namespace of a node's containers, and has its host name."""
        files = self.files
        return (
            str(self.programs["nsenter"]),
            f"--mount={files.mounts(node.name)}",
            f"--uts={files.host_name(node.name)}",
            "--",
        )

    def _kube_proxy(self, node: NodePlan) -> Component:
        mode = self.proxy.partition("+")[0].rpartition("-")[2]
        own = {**flags.kube_proxy(self.files, node, mode), **self._settings(KUBE_PROXY, node)}
        return Component(KUBE_PROXY, node.name, self._command("kube-proxy", own))

    def _announcer(
        self, name: str, node: NodePlan | None, environment: Mapping[str, str], *arguments: str
    ) -> Component:
        where = node.name if node else None
        own = {**environment, "KUBECONFIG": str(self.files.kubeconfig_of(name, where)), **self._settings(name, node)}
        return Component(name, where, (str(self.programs[name]), *arguments), own)

    def _of_speaker(self, node: NodePlan) -> Mapping[str, str]:
        return metallb.speaker(node, str(self.files.metallb_secret))

    def _command(self, program: str, own: Mapping[str, str]) -> tuple[str, ...]:
        return (str(self.programs[program]), *(f"--{flag}={value}" for flag, value in own.items()))

    def _module(self, name: str, module: str, *arguments: str) -> Component:
        return Component(name, None, (sys.executable, "-m", module, *arguments))

    def _has_bird(self, node: NodePlan) -> bool:
        return packages.BIRD in self.programs and self._settings(AGENT, node).get(BGP) == "on"

    def _bird(self, node: NodePlan) -> Component:
        """Return BIRD as it runs beside the agent, with the capabilities that its container has."""
        only = ("setpriv", "--bounding-set=-all,+net_bind_service,+net_admin,+net_raw", "--inh-caps=-all")
        program = (sys.executable, "-m", "kube_nftlb.announce.bird", _bird_dir(node), str(self.files.bird_secret))
        argv = (*only, *program, str(self.programs[packages.BIRD]))
        return Component(BIRD, node.name, argv, packages.environment(self.programs), grace_s=_BIRD_GRACE_S)

    def _node_environment(self, node: NodePlan) -> dict[str, str]:
        own = {"KUBE_NFTLB_BIRD_DIR": _bird_dir(node)} if self._has_bird(node) else {}
        return {
            **own,
            "KUBE_NFTLB_NODE_NAME": node.name,
            "KUBE_NFTLB_RUN_DIR": str(self.files.run(node.name)),
            "KUBE_NFTLB_NFTLB_PORT": "5555",
            "KUBE_NFTLB_METRICS_ADDRESS": "[::]:9195",
            "KUBE_NFTLB_HEALTH_ADDRESS": "[::]:10256",
            "KUBE_NFTLB_PROXY_MODE_ADDRESS": "127.0.0.1:10249",
            "KUBE_NFTLB_RESPONDER_SOCKET": _responder_socket(node),
        }

    def _responder(self, node: NodePlan) -> Component:
        """Return the process that answers ARP and NDP for the agent, with the one capability that its container has."""
        only = ("setpriv", "--bounding-set=-all,+net_raw", "--inh-caps=-all")
        argv = (*only, sys.executable, "-m", "kube_nftlb.announce.wire", _responder_socket(node))
        return Component(RESPONDER, node.name, argv)

    def _operator(self, number: int) -> Component:
        """Return operator ``number``, counted from 1. All share the control plane's network, with their own ports."""
        ports = 9195 + 100 * (number - 1)
        environment = {
            "KUBE_NFTLB_METRICS_ADDRESS": f"[::]:{ports}",
            "KUBE_NFTLB_HEALTH_ADDRESS": f"[::]:{ports + 1}",
            # A single operator that was killed should not wait for its own lease to expire.
            "KUBE_NFTLB_LEADER_ELECTION": "on" if self.operators > 1 else "off",
        }
        component = self._kube_nftlb(OPERATOR, "operator", None, environment)
        return component if number == 1 else replace(component, name=f"{OPERATOR}-{number}")

    def _kube_nftlb(self, name: str, command: str, node: NodePlan | None, environment: Mapping[str, str]) -> Component:
        where = node.name if node else None
        common = {"KUBECONFIG": str(self.files.kubeconfig_of(name, where)), "KUBE_NFTLB_LOG_LEVEL": "INFO"}
        argv = (sys.executable, "-m", "kube_nftlb", command)
        settings = self._settings(name, node)
        return Component(name, where, argv, {**common, **environment, **settings})

    def _settings(self, name: str, node: NodePlan | None) -> dict[str, str]:
        own = self.settings.get(f"{name}@{node.name}", {}) if node else {}
        return {**self.settings.get(name, {}), **own}


def _bird_dir(node: NodePlan) -> str:
    return f"/run/bird-{node.name}"


def _responder_socket(node: NodePlan) -> str:
    # The lab's /run is its own, and the path of a socket has to be short.
    return f"/run/responder-{node.name}.sock"


def base_environment(files: LabFiles, *bin_folders: Path) -> dict[str, str]:
    """Return the environment of all programs in the lab, with kubectl, kube-nftlb and KUBECONFIG."""
    commands = Path(sys.executable).parent
    folders = ":".join(map(str, (commands, *bin_folders)))
    path = f"{folders}:{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    # A proxy of the caller is not reachable from inside.
    outside = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
    inherited = {key: value for key, value in os.environ.items() if key.lower() not in outside}
    return {**inherited, "PATH": path, "KUBECONFIG": str(files.inside_kubeconfig), "PYTHONUNBUFFERED": "1"}
