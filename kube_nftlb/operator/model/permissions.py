"""The administrator's permissions for annotations. No I/O."""

import ipaddress
from typing import Final, NamedTuple

from kube_nftlb.api.farm.engines import ENGINES
from kube_nftlb.api.values import HELPERS
from kube_nftlb.environment import IpNetwork, NumberRanges
from kube_nftlb.operator.model.annotation_options import Fields

ALL_IPS: Final[tuple[IpNetwork, ...]] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))

_NOTHING = NumberRanges()


class Permissions(NamedTuple):
    """The values that annotations may ask for."""

    source_addresses: tuple[IpNetwork, ...] = ALL_IPS
    marks: NumberRanges = _NOTHING
    queues: NumberRanges = _NOTHING
    helpers: frozenset[str] = frozenset(HELPERS)
    engines: frozenset[str] = frozenset(ENGINES)

    def objection(self, fields: Fields) -> str | None:
        """Return why fields of a farm or a backend are forbidden, or None; it names the value and what is allowed."""
        address = fields.get("sourceAddress")
        if address is not None and not any(ipaddress.ip_address(address) in each for each in self.source_addresses):
            return f"{address} is in none of the ranges that the administrator allows for source addresses"
        mark = fields.get("mark")
        number = int(mark, 16) if isinstance(mark, str) else mark
        if number is not None and not self.marks.include(number):
            return f"the mark {number:#x} is not allowed; the administrator allows {self.marks.text}"
        queue = fields.get("queue")
        if queue is not None and not self.queues.include(queue):
            return f"the queue {queue} is not allowed; the administrator allows {self.queues.text}"
        helper = fields.get("helper", "none")
        if helper != "none" and helper not in self.helpers:
            allowed = ", ".join(sorted(self.helpers)) or "none"
            return f"the helper {helper} is not allowed; the administrator allows {allowed}"
        engine = fields.get("engine")
        if engine is not None and engine not in self.engines:
            allowed = ", ".join(sorted(self.engines)) or "none"
            return f"the engine {engine} is not allowed; the administrator allows {allowed}"
        return None
