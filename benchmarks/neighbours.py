"""``python -m benchmarks.neighbours IP...``: ask who has addresses, one after the other, until told to end.

Runs where the addresses' segment is. Prints the times of the answers in milliseconds, and the number of questions
without one, as JSON.
"""

import json
import select
import signal
import sys
import time
from ipaddress import ip_address
from typing import Final

from kube_nftlb.announce.wire import arp, ndp
from kube_nftlb.announce.wire.links import Link

_LINK: Final = "eth0"
_EVERY_S, _PATIENCE_S = 0.02, 1.0
_IPV4_BYTES: Final = 4


class _OverError(Exception):
    pass


def main() -> None:
    """Ask until SIGTERM."""

    def end(*_: object) -> None:
        raise _OverError

    signal.signal(signal.SIGTERM, end)
    link = Link.open(_LINK)
    mac, took, lost, number = link.addresses().mac, list[float](), 0, 0
    try:
        while True:
            ip = ip_address(sys.argv[1:][number % (len(sys.argv) - 1)]).packed
            number += 1
            began = time.monotonic()
            link.send(arp.question(mac, ip) if len(ip) == _IPV4_BYTES else ndp.probe(mac, ip))
            if _answered(link, ip, began + _PATIENCE_S):
                took.append((time.monotonic() - began) * 1000)
            else:
                lost += 1
            time.sleep(_EVERY_S)
    except _OverError:
        print(json.dumps({"took": took, "lost": lost}))


def _answered(link: Link, ip: bytes, until: float) -> bool:
    while (left := until - time.monotonic()) > 0:
        select.select(link.sockets, (), (), left)
        for frame in link.read():
            said = arp.read(frame) or ndp.read(frame)
            if said is not None and said.statement is not None and said.statement.ip == ip:
                return True
    return False


if __name__ == "__main__":
    main()
