"""The contents of the agent table that all farms share: sets and maps for their elements, and chains. Pure: no I/O."""

import functools
from collections.abc import Collection, Iterable, Mapping

from kube_nftlb.agent.table import hooks, layout, unserved
from kube_nftlb.api.address_ranges import AddressRange, intervals
from kube_nftlb.api.base import Family
from kube_nftlb.netfilter.table_text import (
    ADDRESS_TYPE,
    FAMILIES,
    NFPROTO,
    REFUSES,
    Chain,
    Contents,
    NamedSet,
)

_LISTENER_KEY = {family: f"inet_proto . {address} . inet_service" for family, address in ADDRESS_TYPE.items()}

_VERDICT_MAPS = (
    layout.SOURCE_RANGES,
    layout.POLICY,
    layout.CUT,
    layout.NO_ENDPOINTS,
    layout.CONNECTIONS,
    layout.RESETS,
    layout.INVALIDS,
    layout.QUEUES,
    layout.FORWARDED,
    layout.LEAVING,
    layout.MASQUERADE,
)


_SETS = (
    tuple(
        NamedSet(f"{name}-{family}", f"type {key}{value};", kind="map")
        for family, key in _LISTENER_KEY.items()
        for name, value in (
            *((name, " : verdict") for name in _VERDICT_MAPS),
            (layout.SOURCES, f" : {ADDRESS_TYPE[family]}"),
            (layout.BACKEND_SOURCES, f" . {ADDRESS_TYPE[family]} : {ADDRESS_TYPE[family]}"),
            (layout.MARKS, " : mark"),
            (layout.BACKEND_MARKS, f" . {ADDRESS_TYPE[family]} : mark"),
        )
    )
    + tuple(
        NamedSet(f"{name}-all-{family}", f"type {key} : verdict;", kind="map")
        for name in (
            layout.SOURCE_RANGES,
            layout.POLICY,
            layout.CUT,
            layout.NO_ENDPOINTS,
            layout.QUEUES,
            layout.MASQUERADE,
        )
        for family, key in ADDRESS_TYPE.items()
    )
    + tuple(
        NamedSet(f"{name}-{family}", f"type {key};")
        for name in (layout.LISTENERS, layout.GIVEN_UP, layout.ANSWERED_HERE, layout.NOT_FROM_NODE, layout.MARKED)
        for family, key in _LISTENER_KEY.items()
    )
    + tuple(
        NamedSet(f"{name}-all-{family}", f"type {key};")
        for name in (layout.LISTENERS, layout.GIVEN_UP, layout.ANSWERED_HERE, layout.NOT_FROM_NODE)
        for family, key in ADDRESS_TYPE.items()
    )
    + tuple(NamedSet(f"{layout.HAIRPIN}-{family}", f"type {key} . {key};") for family, key in ADDRESS_TYPE.items())
    + tuple(NamedSet(f"{layout.SERVED_ADDRESSES}-{family}", f"type {key};") for family, key in ADDRESS_TYPE.items())
)

_NOT_FROM_PODS = tuple(f"{layout.from_local_pods(family)} return" for family in FAMILIES)

_CHAINS = (
    Chain("refuse", REFUSES),
    Chain("masquerade-always", ("masquerade fully-random",)),
    Chain("masquerade-from-outside", (*_NOT_FROM_PODS, "masquerade fully-random")),
    Chain("masquerade-from-itself", ("fib saddr type local masquerade fully-random",)),
    # Established connections do not survive a moment in which the network namespace has no chain of the type nat,
    # such as nftlb's start. One is enough, and before routing only packets that nobody translates come as far.
    Chain("keep-nat", (), "type nat hook prerouting priority 100; policy accept;"),
)


SET_NAMES = frozenset(named.name for named in _SETS)
"""All maps and sets that farms put elements into."""


@functools.lru_cache
def base(used: frozenset[str], lets_wait: bool = False) -> Contents:
    """Return what all farms share if these sets have elements: of SET_NAMES, and of pools.

    With ``lets_wait`` packets that nobody translates are dropped, because an engine is about to: who is refused by TCP
    does not try again.
    """
    chains = (
        *_CHAINS,
        *unserved.chains(used, "drop" if lets_wait else "goto refuse"),
        *hooks.arriving(used),
        *hooks.queueing(used),
        *hooks.passing(used),
        *hooks.translating(used),
        *hooks.marking(used),
    )
    return Contents(sets=_SETS, chains=chains)


def nftlb_port(port: int) -> Contents:
    """Return what keeps every user but root from the port of nftlb's API on this node."""
    rule = f"ip daddr 127.0.0.1 tcp dport {port} meta skuid != 0 goto refuse"
    return Contents(chains=(Chain("nftlb-port", (rule,), "type nat hook output priority -90; policy accept;"),))


def environment(local_pods: Mapping[Family, Iterable[str]], service_ranges: Mapping[Family, Iterable[str]]) -> Contents:
    """Return the sets of this node's ranges of pods and the cluster's ranges for Services."""
    return Contents(
        sets=tuple(
            NamedSet(
                f"{name}-{table}",
                f"type {ADDRESS_TYPE[table]}; flags interval; auto-merge;",
                tuple(sorted(by_family.get(family, ()))),
            )
            for name, by_family in ((layout.LOCAL_PODS, local_pods), (layout.SERVICE_RANGES, service_ranges))
            for table, family in NFPROTO.items()
        )
    )


def pool_ranges(ranges: Collection[AddressRange]) -> Contents:
    """Return the sets of the addresses of pools; none of a family without any."""
    by_family = {table: intervals(ranges, family) for table, family in NFPROTO.items()}
    return Contents(
        sets=tuple(
            NamedSet(f"{layout.POOL_RANGES}-{table}", f"type {ADDRESS_TYPE[table]}; flags interval;", elements)
            for table, elements in by_family.items()
            if elements
        )
    )
