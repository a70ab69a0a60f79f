"""Open a connection as the client would: from this node, or from a pod on it."""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kube_nftlb import errors
from kube_nftlb.netfilter import namespaces, rtnetlink
from kube_nftlb.netfilter.tracing.table import Flow

TIMEOUT_S: Final = 3.0
_TYPES: Final = {
    "TCP": (socket.SOCK_STREAM, 0),
    "UDP": (socket.SOCK_DGRAM, 0),
    "SCTP": (socket.SOCK_STREAM, socket.IPPROTO_SCTP),
}


def prober(client: str) -> Callable[[Flow], str]:
    """Return what sends a probe from the client's address: from here, or from the namespace of its pod.

    Raises UsageError if the address is neither this node's nor that of a pod that can be entered.
    """
    if client in addresses():
        return send
    for path in namespaces.other_networks().values():
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if client in namespaces.in_namespace(descriptor, rtnetlink.addresses):
                return lambda flow: namespaces.in_namespace(descriptor, lambda: send(flow))
            os.close(descriptor)
    raise errors.UsageError(
        f"cannot send from {client}: it is neither an address of this node nor of a pod here that can be entered, for "
        "which the agent needs the chart's dsr.enabled; connect from the client itself while this runs, without --send"
    )


def send(flow: Flow) -> str:
    """Open a connection, and close it; or send an empty datagram. Return what came of it, in words."""
    family = socket.AF_INET6 if ":" in flow.ip else socket.AF_INET
    kind, protocol = _TYPES[flow.protocol]
    try:
        with socket.socket(family, kind, protocol) as opened:
            opened.settimeout(TIMEOUT_S)
            opened.bind((flow.client, 0))
            opened.connect((flow.ip, flow.port))
            if flow.protocol != "UDP":
                return "connected"
            opened.send(b"")
            opened.recv(1)
            return "there was a reply"
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return f"no reply within {TIMEOUT_S:.0f} s"
    except OSError as error:
        return f"failed: {errors.why(error)}"


def addresses() -> set[str]:
    """Return the addresses of this network namespace."""
    # pyroute2 runs an event loop of its own.
    return namespaces.in_thread(rtnetlink.addresses)
