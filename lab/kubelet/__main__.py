"""``python -m lab.kubelet FOLDER``: run the kubelet stand-in of the lab in that folder."""

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

from kube_nftlb.kube.client import Kube
from lab import addresses, control
from lab.kubelet.manager import Manager
from lab.state import LabFiles, LabRecord


async def _run(files: LabFiles, record: LabRecord) -> None:
    # Exit at once: a graceful end would end the pods too, and the next kubelet must find them.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, 0)
    nodes = addresses.plan_nodes(record.nodes, record.zones)
    async with await Kube.connect(files.inside_kubeconfig, "kube-nftlb-lab-kubelet") as kube:
        manager = Manager(kube, files, nodes, record.kubernetes)
        server = await control.serve(files.kubelet_control, manager.answer)
        async with server:
            await manager.run()


if __name__ == "__main__":
    _, _hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_hard_limit, _hard_limit))
    _files = LabFiles(Path(sys.argv[1]))
    asyncio.run(_run(_files, _files.read_record()))
