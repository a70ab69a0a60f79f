"""Set up the network of a lab, start its components and keep them running."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kube_nftlb import errors
from kube_nftlb.netfilter.namespaces import in_namespace
from lab import addresses, cni, components, control, credentials, forward, namespaces, network
from lab.components import Blueprint, Component
from lab.containers import archive, config, images
from lab.containers import nodes as container_nodes
from lab.flannel import config as flannel
from lab.metallb import plan as metallb
from lab.places import CLIENT
from lab.processes import Process, Processes
from lab.routing import plan
from lab.routing.plan import RouterPlan

if TYPE_CHECKING:
    from kube_nftlb.kube.client import Kube

_LOG_TAIL_BYTES = 1500
_CRASH_LOOP = 3


class Supervisor:
    """The components of a lab while they run."""

    def __init__(self, blueprint: Blueprint, snapshotter: str, report: Callable[[str], None]) -> None:
        self._blueprint = blueprint
        self._snapshotter = snapshotter
        self._files = blueprint.files
        self._report = report
        self._processes = Processes()
        folders = [blueprint.programs[name].parent for name in ("nftlb", "kubectl") if name in blueprint.programs]
        self._environment = components.base_environment(self._files, *folders)
        self._servers: list[asyncio.Server] = []

    async def bring_up(self, listener: socket.socket) -> None:
        """Start everything and wait until it is ready. Raises LabError with the log of the failed component."""
        self._processes.watch()
        await asyncio.to_thread(network.set_up_root, self._blueprint.nodes)
        self._report("starting etcd and the API server")
        self._start(self._blueprint.control_plane())
        self._servers.append(await forward.serve(listener))
        self._servers.append(await control.serve(self._files.control, self._answer))
        await asyncio.to_thread(self._set_up_network)
        tasks = [asyncio.create_task(self._start_components()), asyncio.create_task(self._until_crash_loop())]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        try:
            done.pop().result()
        except errors.KubeNftlbError as error:
            raise errors.LabError(f"{error}{self._log_tail_of_failure()}") from error
        finally:
            tasks[1].cancel()

    async def _start_components(self) -> None:
        # Imported late: it takes half a second, in which the API server starts.
        from kube_nftlb.kube import resources
        from kube_nftlb.kube.client import Kube
        from lab import readiness, rights

        nodes = {node.name for node in self._blueprint.nodes}
        with_crds = self._blueprint.has_kube_nftlb
        folders = [*([readiness.crd_folder()] if with_crds else []), *self._blueprint.crds]
        crds = [body for folder in folders for body in readiness.read_crds(folder)]
        async with await Kube.connect(self._files.inside_kubeconfig, "kube-nftlb-lab") as client:
            await readiness.until_api_server(client)
            self._report("starting the controllers and nodes")
            if self._blueprint.runtime == components.CONTAINERS:
                await readiness.create_nodes(client, self._blueprint.nodes)
            self._start(self._blueprint.controllers())
            if backend := cni.backend():
                self._files.flannel_network.write_text(flannel.network(backend))
                await asyncio.gather(*(readiness.until_created(client, resources.NODES, name) for name in nodes))
                self._start(self._blueprint.routers())
                await readiness.until_written([self._files.flannel_subnets(name) for name in nodes])
            if self._blueprint.runtime == components.CONTAINERS:
                for node in self._blueprint.nodes:
                    container_nodes.connect(self._files, node)
                await asyncio.to_thread(self._load_images)
                self._start(self._blueprint.kubelets())
            self._start(self._blueprint.frr())
            await readiness.apply_crds(client, crds)
            if with_crds:
                of_operator, of_agents = map(self._settings_of, (components.OPERATOR, components.AGENT))
                await rights.grant(client, rights.folder(), of_operator, of_agents)
                self._write_kubeconfig(components.OPERATOR, None, await rights.operator_token(client))
                self._start(self._blueprint.operators_and_daemons())
                for node in self._blueprint.nodes:
                    self._write_kubeconfig(components.AGENT, node.name, await rights.agent_token(client, node))
            self._start(self._blueprint.proxies())
            await readiness.until_nodes_ready(client, nodes)
            if announcers := self._blueprint.announcers():
                await self._start_metallb(client, announcers)
            if self._blueprint.proxy == "kube-nftlb":
                self._report("waiting for the agents")
                await readiness.until_agents_ready(client, nodes)

    async def _start_metallb(self, client: "Kube", announcers: list[Component]) -> None:
        from lab import metallb_rights
        from lab.metallb import build

        manifest = build.manifest(self._blueprint.programs[announcers[0].name].parent)
        await metallb_rights.grant(client, manifest.read_text(), self._blueprint.nodes)
        self._files.metallb_secret.mkdir(mode=0o700)
        (self._files.metallb_secret / metallb.SECRET_KEY).write_text(secrets.token_urlsafe(128))
        for component in announcers:
            self._write_kubeconfig(component.name, component.node, await metallb_rights.token(client, component.name))
        self._start(announcers)

    def _settings_of(self, component: str) -> Mapping[str, str]:
        return self._blueprint.settings.get(component, {})

    async def _until_crash_loop(self) -> None:
        while True:
            for process in self._processes:
                if process.restarts >= _CRASH_LOOP:
                    raise errors.LabError(f"{process.component.name} exits repeatedly")
            await asyncio.sleep(0.2)

    def _write_kubeconfig(self, component: str, node: str | None, token: str) -> None:
        credentials.write_kubeconfig(self._files, self._files.kubeconfig_of(component, node), token)

    def _start(self, wanted: list[Component]) -> None:
        for component in wanted:
            netns = self._files.netns / component.node if component.node else None
            log = self._files.log(component.name, component.node)
            self._processes.add(Process(component, netns, log, self._environment))

    def _set_up_network(self) -> None:
        netns = self._files.netns
        nodes = self._blueprint.nodes
        connected = () if cni.backend() else nodes
        for node in nodes:
            namespaces.create_network(netns / node.name)
            network.attach(netns / node.name, node.name, network.CLUSTER_BRIDGE)
            in_namespace(netns / node.name, partial(network.set_up_node, node, connected))
            if self._blueprint.runtime == components.CONTAINERS:
                container_nodes.prepare(self._files, node, self._snapshotter)
        namespaces.create_network(netns / CLIENT)
        if self._blueprint.bgp_routers:
            self._set_up_routers(self._blueprint.bgp_routers)
            return
        network.attach(netns / CLIENT, CLIENT, network.CLUSTER_BRIDGE)
        # As a router that has learned the routes to the VIPs from the first node.
        in_namespace(netns / CLIENT, lambda: network.set_up_end(addresses.CLIENT, nodes[0].addresses))

    def _set_up_routers(self, routers: list[RouterPlan]) -> None:
        netns, nodes = self._files.netns, self._blueprint.nodes
        network.add_outside()
        for router in routers:
            namespaces.create_network(netns / router.name)
            network.attach(netns / router.name, router.name, network.CLUSTER_BRIDGE)
            network.attach(netns / router.name, f"{router.name}-out", network.OUTSIDE_BRIDGE, "eth1")
            in_namespace(netns / router.name, partial(network.set_up_router, router))
            folder = self._files.router(router.name)
            folder.mkdir(parents=True)
            for name, text in {**plan.files(router, nodes), "group": plan.GROUP}.items():
                (folder / name).write_text(text)
        network.attach(netns / CLIENT, CLIENT, network.OUTSIDE_BRIDGE)
        in_namespace(netns / CLIENT, partial(network.set_up_client_behind, routers))
        for node in nodes:
            in_namespace(netns / node.name, partial(network.add_routes_outside, routers))
        self._files.bird_secret.mkdir()
        for router in routers:
            if router.password:
                (self._files.bird_secret / router.name).write_text(router.password)

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] == "status":
            return {"components": [_describe(process) for process in self._processes]}
        found = self._processes.find(request["component"], request["node"])
        if request["do"] in ("stop", "restart"):
            await asyncio.gather(*(process.stop() for process in found))
        if request["do"] in ("start", "restart"):
            for process in found:
                process.start()
        return {}

    def _load_images(self) -> None:
        image = self._files.pause_image
        image.write_bytes(archive.of_program(self._blueprint.programs["pause"].read_bytes(), config.PAUSE_IMAGE))
        for node in self._blueprint.nodes:
            images.load(self._blueprint.enter(node), image)

    def _log_tail_of_failure(self) -> str:
        failing = [process for process in self._processes if process.restarts or process.pid is None]
        suspects = failing or list(self._processes)[-1:]
        log = suspects[0].log
        return f"\n--- last lines of {log}:\n{log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors='replace')}"


def _describe(process: Process) -> dict[str, Any]:
    return {
        "component": process.component.name,
        "node": process.component.node,
        "state": process.state,
        "pid": process.pid,
        "restarts": process.restarts,
    }
