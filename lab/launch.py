"""Start the supervisor of a lab, and stop it."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kube_nftlb import errors
from lab import credentials
from lab.containers import cgroups
from lab.init import Order
from lab.state import LabFiles, LabRecord

_END_TIMEOUT_S = 60
"""Killing takes milliseconds; on a busy machine the kernel has taken the namespaces apart only after many seconds."""
_FOR_USERS = ("kubectl", "nftlb")
"""``kube-nftlb render -o nft`` looks for nftlb in PATH."""


def launch(
    files: LabFiles,
    *,
    nodes: int,
    zones: list[str] | None,
    proxy: str,
    kubernetes: str,
    operators: int,
    routers: int,
    programs: Mapping[str, Path],
    settings: Mapping[str, Mapping[str, str]],
    crds: Sequence[Path],
    report: Callable[[str], None],
    runtime: str,
    snapshotter: str,
) -> None:
    """Start a lab and wait until it is ready. Raises LabError; then everything is stopped, and its logs are kept."""
    lock = files.take()
    try:
        cgroups.remove(files.root.name)
        _clear(files)
        for folder in (files.logs, files.etcd, files.netns, files.flannel, files.root / "run"):
            folder.mkdir(mode=0o700)
        for number in range(1, nodes + 1):
            files.run(f"node-{number}").mkdir(mode=0o700)
        # Bound on the host; the lab uses it from its own network namespace.
        with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
            credentials.create(files, programs["openssl"], listener.getsockname()[1])
            ours, theirs = socket.socketpair()
            with ours, theirs:
                order = Order(
                    root=str(files.root),
                    nodes=nodes,
                    zones=zones,
                    proxy=proxy,
                    runtime=runtime,
                    snapshotter=snapshotter,
                    operators=operators,
                    routers=routers,
                    programs={name: str(path) for name, path in programs.items()},
                    settings={name: dict(values) for name, values in settings.items()},
                    crds=[str(folder) for folder in crds],
                    lock=lock,
                    listener=listener.fileno(),
                    reports=theirs.fileno(),
                )
                starter = _start(order, files)
                theirs.close()
                _link(files.bin, programs)
                record = LabRecord(
                    nodes, zones, proxy, str(files.bin), pid=0, kubernetes=kubernetes, runtime=runtime, routers=routers
                )
                _follow(ours, files, record, report)
                starter.wait()
    finally:
        os.close(lock)


def _link(folder: Path, programs: Mapping[str, Path]) -> None:
    """Put what users of the lab call by name into a folder for their PATH."""
    folder.mkdir()
    for name in _FOR_USERS:
        if name in programs:
            (folder / name).symlink_to(programs[name])


def end(files: LabFiles) -> None:
    """Kill a running lab, wait until the kernel has removed all of its processes, and remove its files."""
    if not files.is_free():
        _kill(files.load().pid)
    cgroups.remove(files.root.name)
    shutil.rmtree(files.root, ignore_errors=True)


def _start(order: Order, files: LabFiles) -> subprocess.Popen[bytes]:
    with files.log("supervisor", None).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "lab.init", json.dumps(asdict(order))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(order.lock, order.listener, order.reports),
            start_new_session=True,
        )


def _follow(connection: socket.socket, files: LabFiles, record: LabRecord, report: Callable[[str], None]) -> None:
    pid = 0
    failure = f"the lab exited during start-up; see {files.log('supervisor', None)}"
    try:
        with connection.makefile("r") as messages:
            for line in messages:
                message: dict[str, Any] = json.loads(line)
                if "ready" in message:
                    return
                if "pid" in message:
                    pid = message["pid"]
                    files.save(replace(record, pid=pid))
                elif "step" in message:
                    report(message["step"])
                else:
                    failure = message["error"]
                    break
    except BaseException:
        if pid:
            _kill(pid)
        raise
    if pid:
        _kill(pid)
    raise errors.LabError(failure)


def _kill(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        # Readable only after all processes of the PID namespace have exited.
        if not select.select([descriptor], [], [], _END_TIMEOUT_S)[0]:
            raise errors.LabError(f"process {pid} did not exit within {_END_TIMEOUT_S} s of SIGKILL")
    finally:
        os.close(descriptor)


def _clear(files: LabFiles) -> None:
    for path in files.root.iterdir():
        if path == files.lock:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
