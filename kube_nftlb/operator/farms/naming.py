"""Which farm name a Service port gets."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kube_nftlb import names
from kube_nftlb.operator.farms.builder import PortKey


class Contender(NamedTuple):
    """A Service port that would like a farm name; the lowest gets it: the oldest Service, then by name."""

    created: float
    port: PortKey


def farm_name(
    port: PortKey, owned: Iterable[str], contenders: Iterable[Contender], taken: Callable[[str], bool]
) -> str | None:
    """The name of a Service port's farm, or None where even its second name is taken.

    ``owned`` are the farms that it has already: it keeps one, so that no farm is renamed when an older Service goes.
    ``contenders`` are all Service ports whose plain name is this one's, itself among them. ``taken`` tells whether a
    farm of that name exists that is not this port's.
    """
    plain = port.plain_name
    if kept := sorted(owned, key=lambda name: (name != plain, name)):
        return kept[0]
    if min(contenders).port == port and not taken(plain):
        return plain
    distinct = names.distinct_farm_name(plain, port.service, port.port, port.family, external=port.external)
    return None if taken(distinct) else distinct
