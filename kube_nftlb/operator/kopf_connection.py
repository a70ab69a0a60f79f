"""kopf's connection to the API server: how it is made, and how it ends."""

import asyncio

import aiohttp
import kopf
from kubernetes.aio.client.rest import RESTClientObject

from kube_nftlb.kube import kubeconfig
from kube_nftlb.kube.servers import ApiServers


async def login(servers: ApiServers) -> kopf.AiohttpSession:
    """Connect as ``Kube.connect`` does: kopf's own logins support neither tls-server-name nor token rotation."""
    configuration = await kubeconfig.load()

    async def authorize(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if (auth := (await configuration.auth_settings()).get("BearerToken")) is not None and auth["value"]:
            request.headers[auth["key"]] = auth["value"]
        if configuration.tls_server_name:
            request.server_hostname = configuration.tls_server_name
        return await handler(request)

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=RESTClientObject(configuration).ssl_context),
        headers={"User-Agent": "kube-nftlb-operator"},
        middlewares=(servers, authorize),
        proxy=configuration.proxy,
        trust_env=configuration.proxy is None,
    )
    return kopf.AiohttpSession(server=configuration.host, aiohttp_session=session)


async def end_watches() -> None:
    """End the watches that kopf (1.45) leaves open if one has failed.

    At its end it would close their connection, cancel them together with what pauses them, and wait for ever for one
    that takes this for a pause and asks for a new connection.
    """
    watches = [task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")]
    for task in watches:
        task.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
