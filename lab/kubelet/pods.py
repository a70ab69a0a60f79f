"""The life of one pod: bound, running, terminating, gone."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime

from kube_nftlb import errors
from kube_nftlb.kube import resources
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import JsonObject
from lab.addresses import NodePlan
from lab.kubelet import objects
from lab.kubelet.sandbox import Sandbox
from lab.kubelet.servers import PodServer

_RETRY_S = 1.0

log = logging.getLogger(__name__)

ChooseNode = Callable[[JsonObject], str | None]
ClaimSandbox = Callable[[JsonObject, NodePlan], Sandbox | None]


class Pod:
    """One pod object, identified by its UID. ``run`` lasts as long as the pod."""

    def __init__(self, client: Kube, body: JsonObject) -> None:
        self.body = body
        self.sandbox: Sandbox | None = None
        self._kube = client
        self._gone = False
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()
        self._server = PodServer(body["metadata"]["name"])
        self._ready = not objects.was_made_unready(body)

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return str(self.body["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.body["metadata"]["name"])

    @property
    def node_name(self) -> str | None:
        """The node that the pod is bound to."""
        name: str | None = self.body["spec"].get("nodeName")
        return name

    def update(self, body: JsonObject) -> None:
        """Handle a change of the object."""
        self.body = body
        self._changed.set()

    def vanish(self) -> None:
        """Handle the deletion of the object."""
        self._gone = True
        self._changed.set()

    async def set_ready(self, ready: bool) -> None:
        """Set the Ready condition. Raises LabError if the pod is not running."""
        if self.sandbox is None:
            raise errors.LabError(f"the pod {self.namespace}/{self.name} is not running yet")
        self._ready = ready
        await self._write_status(self.sandbox)

    async def run(self, choose_node: ChooseNode, plans: dict[str, NodePlan], claim: ClaimSandbox) -> None:
        """Bind the pod, run it on one of the lab's nodes, and stop it when it is deleted."""
        await self._until_bound(choose_node)
        if self._gone or (plan := plans.get(self.node_name or "")) is None:
            return
        while (sandbox := claim(self.body, plan)) is None:
            await self._warn("FailedCreatePodSandBox", f"{plan.name} has no free pod address left")
            await self._wait(60)
            if self._gone:
                return
        self.sandbox = sandbox
        try:
            await self._start(sandbox)
            await self._until_deleted(sandbox)
        finally:
            self._server.close()
            await asyncio.to_thread(sandbox.remove)
        if not self._gone:
            await self._retry(self._delete)

    async def _until_bound(self, choose_node: ChooseNode) -> None:
        while not self._gone and self.node_name is None:
            # A pod that was never bound: its deletion completes at once.
            node_name = choose_node(self.body) if not self.body["spec"].get("schedulingGates") else None
            if node_name is not None:
                path = resources.PODS.path(self.namespace, self.name, "binding")
                body = objects.binding(self.body, node_name)
                # A failure shows as a change of the pod, or is retried.
                with suppress(errors.KubeError, errors.KubeUnreachableError):
                    await self._kube.request("POST", path, body=body)
            await self._wait(_RETRY_S)

    async def _start(self, sandbox: Sandbox) -> None:
        is_taken_over = bool(self.body.get("status", {}).get("podIPs")) and sandbox.exists()
        if not is_taken_over:
            # The namespace is left from an earlier pod whose deletion was missed.
            await asyncio.to_thread(sandbox.remove)
            await asyncio.to_thread(sandbox.create)
        for port, protocol in objects.ports(self.body):
            try:
                await self._server.serve(await asyncio.to_thread(sandbox.listen, port, protocol))
            except errors.LabError as error:
                await self._warn("PortNotServed", str(error))
        if not is_taken_over:
            await self._retry(lambda: self._write_status(sandbox))

    async def _until_deleted(self, sandbox: Sandbox) -> None:
        opened = objects.gates_are_open(self.body)
        while not self._gone:
            if opened != (opened := objects.gates_are_open(self.body)):
                await self._retry(lambda: self._write_status(sandbox))
            left_s = objects.grace_left_s(self.body["metadata"], _now())
            if left_s == 0:
                return
            await self._wait(left_s)

    async def _wait(self, timeout_s: float | None) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        self._changed.clear()

    async def _write_status(self, sandbox: Sandbox) -> None:
        # One at a time, so that the last write has the latest status.
        async with self._writing:
            status = objects.pod_status(self.body, sandbox.node, sandbox.ips, ready=self._ready, now=_now())
            body = {"metadata": {"uid": self.body["metadata"]["uid"]}, "status": status}
            with suppress(errors.NotFoundError):
                # As a kubelet does: conditions of others, such as those of readiness gates, stay as they are.
                await self._kube.request(
                    "PATCH",
                    resources.PODS.path(self.namespace, self.name, "status"),
                    body=body,
                    content_type="application/strategic-merge-patch+json",
                )

    async def _delete(self) -> None:
        with suppress(errors.NotFoundError, errors.ConflictError):
            uid = self.body["metadata"]["uid"]
            await self._kube.delete(resources.PODS, self.name, self.namespace, uid=uid, grace_s=0)

    async def _retry(self, call: Callable[[], Awaitable[None]]) -> None:
        while not self._gone:
            try:
                await call()
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                log.warning("%s/%s: %s", self.namespace, self.name, error)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _warn(self, reason: str, message: str) -> None:
        log.warning("%s/%s: %s", self.namespace, self.name, message)
        event = objects.warning(self.body, reason, message, _now())
        with suppress(errors.KubeError, errors.KubeUnreachableError):
            await self._kube.create(resources.EVENTS, event, self.namespace)


def _now() -> datetime:
    return datetime.now(UTC)
