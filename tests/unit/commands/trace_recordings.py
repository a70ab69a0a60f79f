"""The kernel's reports about packets, recorded in the lab: the events of ``kube-nftlb trace -o json``, a line each.

``python -m tests.unit.commands.trace_recordings < answer.json > trace/NAME.txt`` makes one. A line with the id 0 is
added by hand: a rule of the same chain that the packet did not match.
"""

import json
import sys
from pathlib import Path
from typing import Any

from kube_nftlb.netfilter.tracing import table
from kube_nftlb.netfilter.tracing.events import Addresses, Event
from kube_nftlb.netfilter.tracing.packets import Packet, Packets
from kube_nftlb.netfilter.tracing.rules import Rule, Rules, chain_of

_FOLDER = Path(__file__).with_name("trace")
_BETWEEN = " | "
_NOTHING = "-"


def names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.txt"))


def load(name: str) -> tuple[Packet, Rules]:
    """Return the packet of a recording, and the rules that it matched."""
    packets, rules = Packets(table.name(1)), Rules()
    for line in (_FOLDER / f"{name}.txt").read_text().splitlines():
        event, expressions = _read(line)
        if event.id:
            packets.add(event)
        if expressions:
            rules[chain_of(event), event.rule] = Rule(expressions)
    (packet,) = packets.all
    return packet, rules


def _read(line: str) -> tuple[Event, tuple[str, ...]]:
    number, where, kind, rule, verdict, to, addresses, told = (
        "" if part == _NOTHING else part for part in line.split(_BETWEEN)
    )
    family, its_table, chain = where.split(" ")
    assert kind in ("rule", "policy", "return")
    at = None
    if addresses:
        source, source_port, destination, port = addresses.split(" ")
        at = Addresses(source, int(source_port), destination, int(port))
    event = Event(int(number), family, its_table, chain, kind, verdict, to, int(rule or 0), at)  # type: ignore[arg-type]  # asserted above
    return event, tuple(part for part in told.split("; ") if part)


def _line(told: dict[str, Any]) -> str:
    parts = (
        told["id"],
        f"{told['family']} {told['table']} {told['chain']}",
        told["kind"],
        told.get("rule"),
        told["verdict"],
        told.get("to"),
        " ".join(str(part) for part in told.get("addresses", {}).values()),
        "; ".join(told.get("expressions", ())),
    )
    return _BETWEEN.join(str(part or _NOTHING) for part in parts)


if __name__ == "__main__":
    print("\n".join(_line(each) for each in json.load(sys.stdin)["events"]))
