"""Choose the farm name of a Service port."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kube_nftlb import names
from kube_nftlb.operator.farms.ports import PortKey


class Contender(NamedTuple):
    """A Service port that needs a farm name. The lowest gets it: the oldest Service, then by name."""

    created: float
    port: PortKey


def farm_name(
    port: PortKey, owned: Iterable[str], contenders: Iterable[Contender], taken: Callable[[str], bool]
) -> str | None:
    """Return the name of a Service port's farm, or None if its second name is taken too.

    ``owned`` are its existing farms: one name is kept, so that no farm is renamed when an older Service is deleted.
    ``contenders`` are all Service ports with this plain name, including this one. ``taken`` returns True if a farm with
    a name exists that is not this port's.
    """
    plain = port.plain_name
    if existing := sorted(owned, key=lambda name: (name != plain, name)):
        return existing[0]
    if min(contenders).port == port and not taken(plain):
        return plain
    distinct = names.distinct_farm_name(plain, port.service, port.port, port.family, external=port.external)
    return None if taken(distinct) else distinct
