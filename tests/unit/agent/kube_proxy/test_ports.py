"""Ports that another process holds, with real sockets."""

import socket
import subprocess
import sys

from kube_nftlb.agent.kube_proxy.ports import held_by_others

LISTEN = """
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_only_ports_of_other_processes_count() -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        command = [sys.executable, "-c", LISTEN]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdin
            assert other.stdout
            theirs, ours = int(other.stdout.readline()), own.getsockname()[1]
            assert held_by_others([ours, theirs]) == [theirs]
            other.stdin.close()
            other.wait(10)
        assert held_by_others([ours, theirs]) == []
