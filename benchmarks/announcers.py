"""Clusters of three nodes that announce addresses of Services on the client's segment, by kube-nftlb or MetalLB."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from benchmarks import cluster
from benchmarks.subjects import Subject
from kube_nftlb import errors, names
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import ADDRESS_POOLS, SERVICES, JsonObject, Resource
from lab.components import RESPONDER
from lab.lab import Lab
from lab.metallb import plan
from lab.places import CLIENT, SWITCH

SCENARIO: Final = "addresses"
WEB, LOCAL = "web", "local"
"""Deployments of six pods, and of one on each node."""
IDLE, STEADY = "idle", "steady"
_OTHERS, _OTHERS_ENDPOINTS = 50, 2
_RANGES: Final = (("172.31.0.16", "172.31.0.199"), ("172.31.2.0", "172.31.3.199"))
_VIPS = 128
"""The block of their cluster IPs: the API server might choose one that another Service is to ask for."""
_LINK: Final = "eth0"
_ANSWERS_WITHIN_S = 60
METALLB_GROUP: Final = "metallb.io"
POOLS = Resource(METALLB_GROUP, "v1beta1", "IPAddressPool", "ipaddresspools")
_ADVERTISEMENTS = Resource(METALLB_GROUP, "v1beta1", "L2Advertisement", "l2advertisements")


class Announcer(NamedTuple):
    """A cluster whose nodes announce addresses."""

    subject: Subject
    lab: Lab
    kube: Kube
    ips: Iterator[str]
    """The addresses of its pool; each is for one Service, as segments remember who had an address."""

    @property
    def name(self) -> str:
        """The name in the records."""
        return self.subject.name

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that assign, announce and serve addresses."""
        return (*self.subject.programs, RESPONDER) if self.subject.ours else self.subject.programs

    @property
    def on_nodes(self) -> tuple[str, ...]:
        """Those of them that run on each node."""
        there = {entry["component"] for entry in self.lab.status() if entry["node"]}
        return tuple(program for program in self.programs if program in there)

    def changing(self, load: str) -> contextlib.AbstractAsyncContextManager[None]:
        """For a block, replace endpoints of other Services if the load is STEADY."""
        if load == IDLE:
            return contextlib.nullcontext()
        return cluster.steady_change(self.kube, cluster.others(_OTHERS, _OTHERS_ENDPOINTS))

    async def announce(self, name: str, app: str | None = None, **spec: Any) -> str:
        """Create a Service of type LoadBalancer, and return the address that it asks for.

        Its pods are those of a Deployment, or it has none.
        """
        ip = next(self.ips)
        await self.create(name, app, ip, **spec)
        return ip

    async def create(self, name: str, app: str | None, ip: str, **spec: Any) -> None:
        """Create a Service of type LoadBalancer that asks for an address."""
        own = {"loadBalancerClass": names.LOAD_BALANCER_CLASS} if self.subject.ours else {}
        body = {
            "type": "LoadBalancer",
            "clusterIP": cluster.vip(_VIPS, int.from_bytes(ip_address(ip).packed[-2:])),
            "allocateLoadBalancerNodePorts": False,
            "selector": {"app": app} if app else None,
        }
        ports = [{"name": "http", "port": 80}]
        spec = {**body, **own, "loadBalancerIP": ip, "ports": ports, **spec}
        await self.kube.create(SERVICES, {"metadata": {"name": name}, "spec": spec}, "default")

    async def delete(self, *services: str) -> None:
        """Delete Services."""
        for name in services:
            await self.kube.delete(SERVICES, name, "default")

    async def answered(self, ip: str) -> bool:
        """Wait until a client on the segment is served at an address; return False if it is not within a minute."""
        met = await cluster.until(self.lab, "until-answers", ip, timeout_s=_ANSWERS_WITHIN_S, where=CLIENT)
        return bool(met["answered"])

    def holder(self, ip: str) -> str:
        """Return the node to which the client sends packets for an address. Raises LabError if there is none."""
        known = json.loads(self.lab.exec(CLIENT, "ip", "-j", "neigh", "show", ip).stdout)
        mac = next((entry["lladdr"] for entry in known if "lladdr" in entry), "")
        for node in self.lab.nodes:
            if self._mac(node.name) == mac:
                return node.name
        raise errors.LabError(f"no node has the MAC address {mac!r}, at which the client has {ip}")

    def _mac(self, node: str) -> str:
        (link,) = json.loads(self.lab.exec(node, "ip", "-j", "link", "show", _LINK).stdout)
        return str(link["address"])


@contextlib.asynccontextmanager
async def announcer(subject: Subject) -> AsyncIterator[Announcer]:
    """Start a cluster of a subject, with pods, a pool, and other Services."""
    lab = await asyncio.to_thread(subject.lab, SCENARIO, nodes=3, announcing=True)
    try:
        for node in lab.nodes:
            _make_port_of_switch(lab, node.name)
        async with await Kube.connect(lab.kubeconfig, "kube-nftlb-benchmark") as kube:
            for resource, body in _pool(subject):
                await kube.create(resource, body, plan.NAMESPACE if resource.namespaced else None)
            await cluster.run_pods(kube, {WEB: 6, LOCAL: 3})
            await cluster.create_others(kube, _OTHERS, endpoints=_OTHERS_ENDPOINTS)
            ranges = [[int(ip_address(each)) for each in ends] for ends in _RANGES]
            numbers = (number for first, last in ranges for number in range(first, last + 1))
            yield Announcer(subject, lab, kube, (str(ip_address(number)) for number in numbers))
    finally:
        await asyncio.to_thread(lab.down)


def _make_port_of_switch(lab: Lab, node: str) -> None:
    """Have a node no more hear its own frames, as behind a switch, and so its own questions. Raises LabError."""
    done = lab.exec(SWITCH, "bridge", "link", "set", "dev", node, "hairpin", "off")
    if done.returncode != 0:
        raise errors.LabError(f"bridge: {done.stderr}")


def _pool(subject: Subject) -> list[tuple[Resource, JsonObject]]:
    """Return the objects with which a subject assigns and announces the addresses."""
    ranges = [f"{first}-{last}" for first, last in _RANGES]
    if subject.ours:
        return [(ADDRESS_POOLS, pool_object(ADDRESS_POOLS, ranges=ranges))]
    return [
        (POOLS, pool_object(POOLS, addresses=ranges)),
        # MetalLB's own manifest leaves out the links of pods, in another way.
        (_ADVERTISEMENTS, pool_object(_ADVERTISEMENTS, interfaces=[_LINK])),
    ]


def pool_object(resource: Resource, **spec: Any) -> JsonObject:
    """Return an object with which addresses are assigned or announced."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "segment"},
        "spec": spec,
    }
