"""The first process of a lab (PID 1 of its PID namespace), which becomes its supervisor.

It enters its own namespaces first. When it exits, the kernel kills every other process of the lab, and with them every
network namespace disappears.
"""

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from kube_nftlb import errors
from kube_nftlb.netfilter.namespaces import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    become_mapped_root,
    unshare,
)
from lab import addresses, namespaces
from lab.components import Blueprint
from lab.routing.plan import plan_routers
from lab.state import LabFiles
from lab.supervisor import Supervisor


@dataclass(frozen=True)
class Order:
    """The parameters from ``launch``, passed as JSON in the only argument."""

    root: str
    nodes: int
    zones: list[str] | None
    proxy: str
    runtime: str
    snapshotter: str  # of containerd, empty without it
    operators: int
    routers: int
    programs: dict[str, str]
    settings: dict[str, dict[str, str]]
    crds: list[str]
    lock: int  # file descriptors, all three
    listener: int
    reports: int


async def _run(order: Order, reports: socket.socket) -> None:
    def report(**message: object) -> None:
        reports.sendall(json.dumps(message).encode() + b"\n")

    listener = socket.socket(fileno=order.listener)
    blueprint = Blueprint(
        LabFiles(Path(order.root)),
        addresses.plan_nodes(order.nodes, order.zones),
        order.proxy,
        {name: Path(path) for name, path in order.programs.items()},
        order.operators,
        order.settings,
        order.runtime,
        plan_routers(order.routers),
        [Path(folder) for folder in order.crds],
    )
    supervisor = Supervisor(blueprint, order.snapshotter, lambda step: report(step=step))
    loop = asyncio.get_running_loop()
    # Nothing is sent on this connection: it becomes readable if `up` exits before the lab is ready.
    loop.add_reader(reports, lambda: os._exit(1))
    try:
        await supervisor.bring_up(listener)
    except (errors.KubeNftlbError, OSError) as error:
        report(error=str(error))
        raise
    loop.remove_reader(reports)
    report(ready=True)
    reports.close()
    await asyncio.Event().wait()


def _enter_namespaces() -> None:
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET
    uid, gid = os.geteuid(), os.getegid()
    with namespaces.on_first_cpu():
        unshare(flags if uid == 0 else flags | CLONE_NEWUSER)
    if uid != 0:
        become_mapped_root(uid, gid)


def _prepare_mounts(files: LabFiles) -> None:
    namespaces.make_mounts_private()
    namespaces.mount_proc()
    # For /run/xtables.lock, which would be the host's.
    namespaces.mount_tmpfs(Path("/run"))
    for folder in (files.netns, files.etcd):
        namespaces.mount_tmpfs(folder)


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    """Enter the namespaces, report the PID of the lab's first process to ``up``, and run as that process."""
    order = Order(**json.loads(sys.argv[1]))
    for descriptor in (order.lock, order.listener, order.reports):
        os.set_inheritable(descriptor, False)
    reports = socket.socket(fileno=order.reports)
    try:
        _enter_namespaces()
        if pid := os.fork():
            reports.sendall(json.dumps({"pid": pid}).encode() + b"\n")
            os._exit(0)
        _prepare_mounts(LabFiles(Path(order.root)))
    except OSError as error:
        reports.sendall(
            json.dumps({"error": f"the kernel does not permit the lab's namespaces: {error}"}).encode() + b"\n"
        )
        raise
    _raise_file_limit()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    asyncio.run(_run(order, reports))


if __name__ == "__main__":
    main()
