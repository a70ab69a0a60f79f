"""The whole operator, with kopf, before an API server in memory."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kube_nftlb.kube.resources import FARMS, SERVICES, Resource
from tests.builders import raw_service
from tests.fakes.api_server import ApiServer, serving


class DeletingApiServer(ApiServer):
    """Loses a Service after its first list was made, whoever made it."""

    def listed(self, resource: Resource) -> None:
        super().listed(resource)
        if resource is SERVICES and self.lists[SERVICES] == 1:
            self.kube.remove(SERVICES, "ghost", "default")


def free_port() -> int:
    """Return a TCP port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@asynccontextmanager
async def operator(kubeconfig: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run an operator."""
    listens = {f"KUBE_NFTLB_{what}_ADDRESS": f"127.0.0.1:{free_port()}" for what in ("METRICS", "HEALTH")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kube_nftlb.operator", env={**os.environ, **listens, "KUBECONFIG": str(kubeconfig)}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_service_deleted_between_the_first_two_lists_gets_no_farm(tmp_path: Path) -> None:
    server = DeletingApiServer()
    for name in ("ghost", "web"):
        server.kube.put(SERVICES, raw_service(name, version=server.kube.version + 1))
    async with serving(server, tmp_path) as kubeconfig, operator(kubeconfig) as process, asyncio.timeout(60):
        while server.kube.find(FARMS, "web--http", "default") is None or server.lists[SERVICES] < 2:
            assert process.returncode is None
            await asyncio.sleep(0.02)
    assert {write.name for write in server.kube.writes if write.resource is FARMS} == {"web--http"}
