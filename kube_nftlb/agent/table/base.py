"""The contents of the agent table that all farms share: sets and maps for their elements, and chains. Pure: no I/O."""

import functools
from collections.abc import Iterable, Iterator, Mapping

from kube_nftlb.agent.table import hooks, layout
from kube_nftlb.api.base import Family
from kube_nftlb.netfilter.table_text import ADDRESS_TYPE, HAS_PORTS, NFPROTO, REFUSES, Chain, Contents, NamedSet

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


def _unserved(verdict: str) -> tuple[str, ...]:
    """Return the rules for packets to an address of the Service ranges that nobody has translated.

    The verdict is an element of a map. Where somebody deletes all tables, as ``flush ruleset`` does, the kernel takes
    the elements of all maps away at once, but unhooks one chain after the other: a verdict in the rule itself would
    refuse who comes between the end of the farms' elements and that of this chain.
    """
    return tuple(
        f"{family} daddr @{layout.SERVICE_RANGES}-{family} meta nfproto vmap {{ {nfproto} : {verdict} }}"
        for family, nfproto in NFPROTO.items()
    )


def _at(name: str, verdict: str, used: frozenset[str]) -> tuple[str, ...]:
    """Return the rules for packets to the listeners in these sets, of those that are used."""
    rules = {
        f"{name}{scope}-{family}": f"{match} @{name}{scope}-{family} {verdict}"
        for family in ADDRESS_TYPE
        for scope, match in (
            ("", f"meta l4proto . {family} daddr . th dport"),
            ("-all", f"{HAS_PORTS} {family} daddr"),
        )
    }
    return tuple(rule for set_, rule in rules.items() if set_ in used)


def _untranslated(used: frozenset[str], *exempt: str) -> tuple[str, ...]:
    """Return the rules that drop new connections to listeners if nobody has translated them; ``exempt`` come first."""
    return ("ct state != new return", "ct status dnat return", *exempt, *_at(layout.LISTENERS, "drop", used))


_FROM_LOCAL_PODS = tuple(f"{family} saddr @{layout.LOCAL_PODS}-{family} return" for family in ADDRESS_TYPE)

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
        for name in (layout.LISTENERS, layout.ANSWERED_HERE, layout.NOT_FROM_NODE, layout.MARKED)
        for family, key in _LISTENER_KEY.items()
    )
    + tuple(
        NamedSet(f"{name}-all-{family}", f"type {key};")
        for name in (layout.LISTENERS, layout.ANSWERED_HERE, layout.NOT_FROM_NODE)
        for family, key in ADDRESS_TYPE.items()
    )
    + tuple(NamedSet(f"{layout.HAIRPIN}-{family}", f"type {key} . {key};") for family, key in ADDRESS_TYPE.items())
)

_CHAINS = (
    Chain("refuse", REFUSES),
    Chain("masquerade-always", ("masquerade fully-random",)),
    Chain("masquerade-from-outside", (*_FROM_LOCAL_PODS, "masquerade fully-random")),
    Chain("masquerade-from-itself", ("fib saddr type local masquerade fully-random",)),
    # Established connections do not survive a moment in which the network namespace has no chain of the type nat,
    # such as nftlb's start. One is enough, and before routing only packets that nobody translates come as far.
    Chain("keep-nat", (), "type nat hook prerouting priority 100; policy accept;"),
)


def _unserved_by_nobody(unserved: tuple[str, ...]) -> Iterator[Chain]:
    """Yield the chains for packets that no engine or other proxy has translated by now.

    They go to a port or an address without a Service. A chain of the type nat is for first packets alone.
    """
    for hook in ("prerouting", "output"):
        yield Chain(f"unserved-nat-{hook}", unserved, f"type nat hook {hook} priority -90; policy accept;")


def _unserved_by_daemon(used: frozenset[str], unserved: tuple[str, ...]) -> Iterator[Chain]:
    """Yield the chains for packets that nothing has translated so far, while nftlb serves farms.

    It may be making its rules anew. A packet that passed in that moment would be refused by who knows no Service, or
    never be translated, however often it is sent; one that is dropped is new when it comes again. To a process that
    sends UDP this is an error (EPERM), as with a firewall; TCP repeats without telling.
    """
    # What the node sends to itself is decided on as it leaves.
    arriving = _untranslated(used, 'iif "lo" return', *_at(layout.ANSWERED_HERE, "return", used))
    leaving = _untranslated(used, *_at(layout.NOT_FROM_NODE, "return", used))
    yield Chain("unserved", (*_untranslated(used), *unserved), hooks.filter_hook("forward", -5))
    yield Chain("unserved-input", arriving, hooks.filter_hook("input", -5))
    yield Chain("unserved-output", (*leaving, *unserved), hooks.filter_hook("output", -90))


_LISTENER_SETS = frozenset(f"{layout.LISTENERS}{scope}-{family}" for scope in ("", "-all") for family in ADDRESS_TYPE)

SET_NAMES = frozenset(named.name for named in _SETS)
"""All maps and sets that farms put elements into."""


@functools.lru_cache
def base(used: frozenset[str], lets_wait: bool = False) -> Contents:
    """Return what all farms share if these of SET_NAMES have elements.

    With ``lets_wait`` packets that nobody translates are dropped, because an engine is about to: who is refused by TCP
    does not try again.
    """
    verdict = _unserved("drop" if lets_wait else "goto refuse")
    unserved = _unserved_by_daemon(used, verdict) if used & _LISTENER_SETS else _unserved_by_nobody(verdict)
    chains = (
        *_CHAINS,
        *unserved,
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
