"""Watch nodes and pods, and run a task for each pod."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from kube_nftlb import errors
from kube_nftlb.kube import resources
from kube_nftlb.kube.client import Kube, Listing
from kube_nftlb.kube.reflector import Handlers, list_and_watch
from kube_nftlb.kube.resources import JsonObject
from lab import addresses, namespaces
from lab.addresses import NodePlan
from lab.kubelet import objects, scheduling
from lab.kubelet.pods import Pod
from lab.kubelet.sandbox import Sandbox
from lab.state import LabFiles

_FINISHED = ("Succeeded", "Failed")
_ATTEMPTS = 50
_RETRY_S = 0.2

log = logging.getLogger(__name__)


class Manager:
    """All nodes and pods of a lab."""

    def __init__(self, client: Kube, files: LabFiles, plans: list[NodePlan], kubernetes: str) -> None:
        self._kube = client
        self._files = files
        self._kubernetes = kubernetes
        self._plans = {plan.name: plan for plan in plans}
        self._nodes: dict[str, JsonObject] = {}
        self._pods: dict[str, Pod] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._chosen: dict[str, str] = {}
        self._last_host = {plan.name: addresses.FIRST_POD_HOST - 1 for plan in plans}

    async def run(self) -> None:
        """Register the nodes and serve until cancelled."""
        await asyncio.gather(*(self._register(plan) for plan in self._plans.values()))
        async with asyncio.TaskGroup() as group:
            for resource, replace, put, remove in (
                (resources.NODES, self._replace_nodes, self._put_node, self._remove_node),
                (resources.PODS, self._replace_pods, self._see, self._remove_pod),
            ):
                handlers = Handlers(replace, put, remove, failed=lambda error: log.warning("%s", error))
                group.create_task(list_and_watch(self._kube, resource, handlers))

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a ``ready`` request. Raises LabError if there is no such pod."""
        wanted = (request["namespace"], request["name"])
        for pod in self._pods.values():
            if (pod.namespace, pod.name) == wanted:
                await pod.set_ready(request["ready"])
                return {}
        raise errors.LabError(f"no pod {'/'.join(wanted)}")

    async def _register(self, plan: NodePlan) -> None:
        body = objects.node(plan)

        async def create() -> None:
            try:
                await self._kube.create(resources.NODES, body)
            except errors.ConflictError:
                await self._kube.patch(resources.NODES, plan.name, {"metadata": body["metadata"]})

        await _retry_unreachable(create)
        # The API server taints every new node, and a controller has to remove the taint.
        await self._kube.patch(resources.NODES, plan.name, {"spec": {"taints": None}})
        status = {"status": objects.node_status(plan, self._kubernetes, datetime.now(UTC))}
        await self._kube.patch(resources.NODES, plan.name, status, subresource="status")

    def _replace_nodes(self, listing: Listing) -> None:
        self._nodes = {item["metadata"]["name"]: item for item in listing.items}

    def _put_node(self, body: JsonObject) -> None:
        self._nodes[body["metadata"]["name"]] = body

    def _remove_node(self, body: JsonObject) -> None:
        self._nodes.pop(body["metadata"]["name"], None)

    def _replace_pods(self, listing: Listing) -> None:
        there = {item["metadata"]["uid"] for item in listing.items}
        for uid, pod in list(self._pods.items()):
            if uid not in there:
                pod.vanish()
        for body in listing.items:
            self._see(body)
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Remove the namespaces of pods that were deleted while no kubelet was running."""
        known = {self._files.pod_netns(pod.namespace, pod.name) for pod in self._pods.values()}
        for path in set(self._files.netns.glob("*.*")) - known:
            namespaces.remove_network(path)

    def _remove_pod(self, body: JsonObject) -> None:
        if pod := self._pods.get(body["metadata"]["uid"]):
            pod.vanish()

    def _see(self, body: JsonObject) -> None:
        uid = body["metadata"]["uid"]
        if pod := self._pods.get(uid):
            pod.update(body)
        elif body.get("status", {}).get("phase") not in _FINISHED:
            predecessor = self._task_of(body["metadata"]["namespace"], body["metadata"]["name"])
            pod = self._pods[uid] = Pod(self._kube, body)
            task = self._tasks[uid] = asyncio.get_running_loop().create_task(self._live(pod, predecessor))
            task.add_done_callback(lambda task: self._forget(uid, task))

    async def _live(self, pod: Pod, predecessor: "asyncio.Task[None] | None") -> None:
        if predecessor is not None:
            # A pod of the same name that was force-deleted: its namespace has to be gone first.
            await asyncio.wait([predecessor])
        await pod.run(self._choose_node, self._plans, self._claim)

    def _task_of(self, namespace: str, name: str) -> "asyncio.Task[None] | None":
        for uid, pod in self._pods.items():
            if (pod.namespace, pod.name) == (namespace, name):
                return self._tasks[uid]
        return None

    def _forget(self, uid: str, task: "asyncio.Task[None]") -> None:
        pod = self._pods.pop(uid)
        del self._tasks[uid]
        self._chosen.pop(uid, None)
        if not task.cancelled() and (error := task.exception()):
            log.error("%s/%s cannot run: %s", pod.namespace, pod.name, error, exc_info=error)

    def _choose_node(self, body: JsonObject) -> str | None:
        uid = body["metadata"]["uid"]
        taken = {**self._chosen, **{key: pod.node_name for key, pod in self._pods.items() if pod.node_name}}
        others = Counter(name for key, name in taken.items() if key != uid)
        owner = scheduling.owner_of(body)
        siblings = Counter(
            name
            for key, name in taken.items()
            if owner is not None
            and key != uid
            and key in self._pods
            and scheduling.owner_of(self._pods[key].body) == owner
        )
        nodes = [node for name, node in sorted(self._nodes.items()) if name in self._plans]
        if (node_name := scheduling.choose_node(body, nodes, others, siblings)) is not None:
            self._chosen[uid] = node_name
        return node_name

    def _claim(self, body: JsonObject, plan: NodePlan) -> Sandbox | None:
        metadata = body["metadata"]
        if body["spec"].get("hostNetwork"):
            return Sandbox(self._files, plan, metadata["namespace"], metadata["name"], None)
        earlier = body.get("status", {}).get("podIP")
        host = (
            plan.pod_host(earlier) if earlier else addresses.next_pod_host(self._used(plan), self._last_host[plan.name])
        )
        if host is None:
            return None
        if not earlier:
            self._last_host[plan.name] = host
        return Sandbox(self._files, plan, metadata["namespace"], metadata["name"], host)

    def _used(self, plan: NodePlan) -> set[int]:
        """Return the host numbers in use, including those of pods started before a restart."""
        used = set()
        for pod in self._pods.values():
            if pod.sandbox is not None and pod.sandbox.node == plan and pod.sandbox.host is not None:
                used.add(pod.sandbox.host)
            elif pod.node_name == plan.name and not pod.body["spec"].get("hostNetwork"):
                address = pod.body.get("status", {}).get("podIP")
                used |= {plan.pod_host(address)} if address else set()
        return used


async def _retry_unreachable(call: Callable[[], Awaitable[None]]) -> None:
    """Repeat a call while the API server is unreachable, such as during its start; raise the last error."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await call()
        except errors.KubeUnreachableError:
            await asyncio.sleep(_RETRY_S)
    return await call()
