"""A pod's network namespace, and the sockets in it."""

import errno
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kube_nftlb import errors
from kube_nftlb.netfilter.namespaces import in_namespace
from lab import cni, namespaces, network, programs
from lab.addresses import NodePlan
from lab.state import LabFiles

_BACKLOG = 4096
_RECEIVE_BUFFER = 4 << 20
_TYPES = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}


@dataclass(frozen=True)
class Sandbox:
    """The place where a pod runs; ``host`` is its number in the node's ranges, None for a pod with hostNetwork."""

    files: LabFiles
    node: NodePlan
    namespace: str
    name: str
    host: int | None

    @property
    def ips(self) -> list[str]:
        """The pod's addresses, IPv4 first."""
        interfaces = self.node.addresses if self.host is None else self.node.pod_interfaces(self.host)
        return [str(interface.ip) for interface in interfaces]

    def exists(self) -> bool:
        """Return True if this pod's namespace exists."""
        return self._netns.exists()

    def create(self) -> None:
        """Create the namespace and connect it to the node. Raises OSError, or LabError if a plugin does not."""
        node_netns = self.files.netns / self.node.name
        if self.host is None:
            namespaces.bind_network(self._netns, node_netns)
            return
        host, own, gateway = self.host, self.node.pod_interfaces(self.host), self.node.gateway
        namespaces.create_network(self._netns)
        if name := cni.chosen():
            made = cni.config(name, self.node, host, cni.mtu(self.files, self.node))
            in_namespace(self._netns, network.prepare_end)
            in_namespace(node_netns, lambda: cni.add(programs.network_plugins(), made, self._netns))
            return
        in_namespace(node_netns, lambda: network.attach(self._netns, f"veth{host}", network.POD_BRIDGE))
        in_namespace(self._netns, lambda: network.set_up_end(own, gateway))

    def remove(self) -> None:
        """Remove the namespace if it exists."""
        if self.host is not None:
            host = self.host
            in_namespace(self.files.netns / self.node.name, lambda: network.detach(f"veth{host}"))
        if self.exists():
            namespaces.remove_network(self._netns)

    def listen(self, port: int, protocol: str) -> socket.socket:
        """Return a socket on all addresses of the pod. Raises LabError if port or protocol are not available."""
        if protocol not in _TYPES:
            raise errors.LabError(f"port {port}: the lab serves TCP and UDP only, not {protocol}")
        try:
            return in_namespace(self._netns, lambda: _listen(port, _TYPES[protocol]))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise errors.LabError(f"port {port}/{protocol} is in use on {self.node.name}") from error
            raise

    @property
    def _netns(self) -> Path:
        return self.files.pod_netns(self.namespace, self.name)


def _listen(port: int, kind: socket.SocketKind) -> socket.socket:
    listener = socket.socket(socket.AF_INET6, kind)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if kind == socket.SOCK_STREAM:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            # A reply must come from the address that was queried, which may be a VIP on the loopback interface.
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            with suppress(OSError):
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        listener.bind(("::", port))
        if kind == socket.SOCK_STREAM:
            listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
