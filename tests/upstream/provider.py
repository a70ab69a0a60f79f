"""``python -m tests.upstream.provider``: give Services load balancer addresses, and route them to nodes.

It runs on the client of the tests, in the place of a cloud. A Service that asks for health checks is routed to a node
that passes them.
"""

import asyncio
import contextlib
import socket
from typing import Any

import aiohttp
from pyroute2 import AsyncIPRoute

from kube_nftlb import addresses, errors
from kube_nftlb.kube import resources
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import JsonObject
from tests.upstream import balancers

_PERIOD_S = 0.5
_HEALTH_TIMEOUT_S = 2


class Provider:
    """The addresses that were given, and their routes."""

    def __init__(self, client: Kube, http: aiohttp.ClientSession, ip: AsyncIPRoute) -> None:
        self._client = client
        self._http = http
        self._ip = ip
        self._routes: dict[str, tuple[str, ...]] = {}

    async def run(self) -> None:
        """Look at all Services again and again."""
        while True:
            # The API server may be slow; a Service may be gone already.
            with contextlib.suppress(errors.KubeError, errors.KubeUnreachableError):
                await self._look()
            await asyncio.sleep(_PERIOD_S)

    async def _look(self) -> None:
        nodes = [_addresses(node) for node in (await self._client.list(resources.NODES, not_older_than="0")).items]
        services = (await self._client.list(resources.SERVICES, not_older_than="0")).items
        taken = {address for service in services for address in balancers.addresses(service)}
        for service in services:
            wanted = balancers.wanted(service, taken)
            taken.update(wanted.addresses)
            if wanted.addresses:
                await self._route(service, wanted.addresses, nodes)
            await self._write(service, wanted)
        for address in [address for address in self._routes if address not in taken]:
            await self._ip.route("delete", dst=_prefix(address))
            del self._routes[address]

    async def _write(self, service: JsonObject, wanted: balancers.Wanted) -> None:
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        kind = resources.SERVICES
        with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
            if wanted.finalizer and not balancers.has_finalizer(service):
                await self._finalizers(service, ours=True)
            if balancers.addresses(service) != wanted.addresses:
                body = balancers.status(wanted.addresses)
                await self._client.patch(kind, name, body, namespace, subresource="status")
            if not wanted.finalizer and balancers.has_finalizer(service):
                await self._finalizers(service, ours=False)

    async def _finalizers(self, service: JsonObject, *, ours: bool) -> None:
        metadata = service["metadata"]
        body: dict[str, Any] = {"metadata": {"finalizers": balancers.finalizers(service, ours=ours)}}
        await self._client.patch(resources.SERVICES, metadata["name"], body, metadata["namespace"])

    async def _route(self, service: JsonObject, addresses: tuple[str, ...], nodes: list[list[str]]) -> None:
        port = balancers.health_port(service)
        for address in addresses:
            is_six = ":" in address
            of_family = [next(each for each in node if (":" in each) == is_six) for node in nodes]
            answers = await asyncio.gather(*(self._is_healthy(node, port) for node in of_family))
            healthy = dict(zip(of_family, answers, strict=True))
            now = self._routes.get(address, ())
            wanted = balancers.route(of_family, healthy, now, sticky=balancers.is_sticky(service))
            if wanted != now:
                family = socket.AF_INET6 if is_six else socket.AF_INET
                if now:
                    await self._ip.route("delete", family=family, dst=_prefix(address))
                hops = [{"gateway": node} for node in wanted]
                await self._ip.route("replace", family=family, dst=_prefix(address), multipath=hops)
                self._routes[address] = wanted
                print(f"{service['metadata']['namespace']}/{service['metadata']['name']}: {address} to {wanted}")

    async def _is_healthy(self, node: str, port: int | None) -> bool:
        if port is None:
            return True
        host = addresses.bracketed(node)
        try:
            async with self._http.get(f"http://{host}:{port}/healthz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False


def _addresses(node: JsonObject) -> list[str]:
    return [entry["address"] for entry in node["status"]["addresses"] if entry["type"] == "InternalIP"]


def _prefix(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


async def _main() -> None:
    timeout = aiohttp.ClientTimeout(total=_HEALTH_TIMEOUT_S)
    async with AsyncIPRoute() as ip:
        kube = await Kube.connect(user_agent="upstream-provider")
        async with kube, aiohttp.ClientSession(timeout=timeout) as http:
            await Provider(kube, http, ip).run()


if __name__ == "__main__":
    asyncio.run(_main())
