"""Wait until the parts of a lab are ready, according to the API server."""

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
_CRDS = "kube-nftlb.io_*.yaml"
_ANY_CRDS = "*.io_*.yaml"
_SERVICE_ACCOUNTS = resources.Resource("", "v1", "ServiceAccount", "serviceaccounts")


def crd_folder() -> Path:
    """Return the folder of the CRDs. Raises LabError if there are none."""
    folder = Path(__file__).parents[1] / "crds"
    if any(folder.glob(_CRDS)):
        return folder
    raise errors.LabError(f"no CRDs found in {folder}; run `make crds`")


async def until_api_server(client: Kube) -> None:
    """Wait until the API server serves requests."""

    async def is_ready() -> bool:
        # /readyz replies in plain text; a request for an object proves the same, and gets JSON.
        await client.request("GET", "/api/v1/namespaces/default", timeout_s=2)
        return True

    await _until(is_ready, "the API server is ready")


def read_crds(folder: Path) -> list[JsonObject]:
    """Return the CRDs in a folder."""
    texts = [path.read_text() for path in sorted(folder.glob(_ANY_CRDS))]
    # Those of the Gateway API have more than a megabyte, and Python's own parser takes seconds for it.
    return [body for text in texts for body in yaml.load_all(text, Loader=yaml.CSafeLoader) if body]


async def apply_crds(client: Kube, crds: list[JsonObject]) -> None:
    """Apply CRDs and wait until the API server serves them."""
    await asyncio.gather(*(client.apply(resources.CRDS, body, field_manager=_FIELD_MANAGER) for body in crds))
    names = {body["metadata"]["name"] for body in crds}

    async def are_served() -> bool:
        listing = await client.list(resources.CRDS)
        return names <= {item["metadata"]["name"] for item in listing.items if is_true(item, "Established")}

    await _until(are_served, "the CRDs are established")


async def create_nodes(client: Kube, nodes: Iterable[NodePlan]) -> None:
    """Create the Node objects, with zones and pod ranges, before the kubelets register them."""
    for node in nodes:
        await client.create(resources.NODES, objects.node(node))


async def until_created(client: Kube, resource: resources.Resource, name: str) -> JsonObject:
    """Wait until a cluster-scoped object exists, and return it."""
    found: JsonObject = {}

    async def is_there() -> bool:
        found.update(await client.get(resource, name))
        return True

    await _until(is_there, f"the {resource.kind} {name} exists")
    return found


async def until_written(files: Iterable[Path]) -> None:
    """Wait until the daemons that connect the nodes have written what they decided."""

    async def are_written() -> bool:
        return all(file.exists() for file in files)

    await _until(are_written, "flannel has connected the nodes")


async def until_nodes_ready(client: Kube, nodes: set[str]) -> None:
    """Wait until all nodes are Ready and pods can be created."""

    async def are_ready() -> bool:
        listing = await client.list(resources.NODES)
        return nodes <= {item["metadata"]["name"] for item in listing.items if is_true(item, "Ready")}

    await _until(are_ready, "all nodes are Ready")
    await until_account(client, "default")


async def until_account(client: Kube, namespace: str) -> None:
    """Wait until a namespace has the service account that Pods without another one need."""

    async def has_service_account() -> bool:
        await client.get(_SERVICE_ACCOUNTS, "default", namespace)
        return True

    await _until(has_service_account, f"the default service account of {namespace} exists")


async def until_pods_run(client: Kube, namespace: str, number: int) -> None:
    """Wait until so many Pods of a namespace have their addresses."""

    async def have_addresses() -> bool:
        items = (await client.list(resources.PODS, namespace)).items
        return sum("podIP" in item.get("status", {}) for item in items) >= number

    await _until(have_addresses, f"{number} Pods of {namespace} run")


async def until_agents_ready(client: Kube, nodes: set[str]) -> None:
    """Wait until the agents of all nodes are Ready."""

    async def are_ready() -> bool:
        listing = await client.list(resources.NFTLB_NODES)
        return nodes <= {item["metadata"]["name"] for item in listing.items if is_true(item, "Ready")}

    await _until(are_ready, "every NftlbNode is Ready")


async def _until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    last_error: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if await condition():
                return
        except (errors.KubeError, errors.KubeUnreachableError) as error:
            last_error = error
        await asyncio.sleep(0.05)
    because = f" (last error: {last_error})" if last_error else ""
    raise errors.LabError(f"timed out after {_TIMEOUT_S} s waiting until {what}{because}")


def is_true(item: JsonObject, condition: str) -> bool:
    """Return True if a condition of an object has the status True."""
    conditions = item.get("status", {}).get("conditions") or []
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)
