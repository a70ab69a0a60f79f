"""What ``lab up`` waits for, as the API server tells."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import yaml

from kube_nftlb import errors
from kube_nftlb.kube import resources
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import JsonObject
from lab.addresses import NodePlan
from lab.kubelet import objects

_TIMEOUT_S = 120
_FIELD_MANAGER = "kube-nftlb-lab"
_SERVICE_ACCOUNTS = resources.Resource("", "v1", "ServiceAccount", "serviceaccounts")


def crd_folder() -> Path:
    """The folder with the custom resources' definitions. Raises LabError when it is not there."""
    folder = Path(__file__).parents[1] / "crds"
    if any(folder.glob("kube-nftlb.io_*.yaml")):
        return folder
    raise errors.LabError(f"no CRDs found in {folder}; run `make crds`")


async def until_api_server(client: Kube) -> None:
    """Wait until the API server is ready to serve."""

    async def is_ready() -> bool:
        # /readyz answers in plain text unless it refuses; a list says as much, and says it in JSON.
        await client.request("GET", "/api/v1/namespaces/default", timeout_s=2)
        return True

    await _until(is_ready, "the API server is ready")


def read_crds(folder: Path) -> list[JsonObject]:
    """The definitions in a folder."""
    return [body for path in sorted(folder.glob("*.yaml")) for body in yaml.safe_load_all(path.read_text()) if body]


async def apply_crds(client: Kube, crds: list[JsonObject]) -> None:
    """Apply definitions, and wait until the API server serves them."""
    await asyncio.gather(*(client.apply(resources.CRDS, body, field_manager=_FIELD_MANAGER) for body in crds))
    names = {body["metadata"]["name"] for body in crds}

    async def are_served() -> bool:
        listing = await client.list(resources.CRDS)
        return names <= {item["metadata"]["name"] for item in listing.items if is_true(item, "Established")}

    await _until(are_served, "the CRDs are established")


async def create_nodes(client: Kube, nodes: Iterable[NodePlan]) -> None:
    """Make the Node objects, with their zones and pod ranges, before kubelets register themselves as them."""
    for node in nodes:
        await client.create(resources.NODES, objects.node(node))


async def until_created(client: Kube, resource: resources.Resource, name: str) -> JsonObject:
    """Wait until there is an object without a namespace; what it is."""
    found: JsonObject = {}

    async def is_there() -> bool:
        found.update(await client.get(resource, name))
        return True

    await _until(is_there, f"the {resource.kind} {name} exists")
    return found


async def until_nodes_ready(client: Kube, nodes: set[str]) -> None:
    """Wait until all nodes are Ready, and until pods may be created."""

    async def are_ready() -> bool:
        listing = await client.list(resources.NODES)
        return nodes <= {item["metadata"]["name"] for item in listing.items if is_true(item, "Ready")}

    async def has_service_account() -> bool:
        await client.get(_SERVICE_ACCOUNTS, "default", "default")
        return True

    await _until(are_ready, "all nodes are Ready")
    await _until(has_service_account, "the default service account exists")


async def until_agents_ready(client: Kube, nodes: set[str]) -> None:
    """Wait until the agents of all nodes say that they are ready."""

    async def are_ready() -> bool:
        listing = await client.list(resources.NFTLB_NODES)
        return nodes <= {item["metadata"]["name"] for item in listing.items if is_true(item, "Ready")}

    await _until(are_ready, "every NftlbNode is Ready")


async def _until(question: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    trouble: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if await question():
                return
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            trouble = error
        await asyncio.sleep(0.05)
    because = f" (last: {trouble})" if trouble else ""
    raise errors.LabError(f"waited {_TIMEOUT_S} s until {what}, in vain{because}")


def is_true(item: JsonObject, condition: str) -> bool:
    """Whether an object says of a condition that it is true."""
    conditions = item.get("status", {}).get("conditions") or []
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)
