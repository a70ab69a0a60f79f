"""The chains of the agent table for packets that nothing has translated. Pure: no I/O."""

from collections.abc import Iterable, Iterator

from kube_nftlb.agent.model import NodeFarm
from kube_nftlb.agent.table import hooks, layout
from kube_nftlb.netfilter.table_text import ADDRESS_TYPE, FAMILIES, HAS_PORTS, NFPROTO, Chain, Contents, TableFamily

_LISTENER_SETS = frozenset(f"{layout.LISTENERS}{scope}-{family}" for scope in ("", "-all") for family in ADDRESS_TYPE)
POOL_SETS = frozenset(f"{layout.POOL_RANGES}-{family}" for family in FAMILIES)
"""The sets of the addresses of pools, which exist only with elements."""


def chains(used: frozenset[str], verdict: str) -> Iterator[Chain]:
    """Yield the chains for packets that nobody translates, with their verdict, if these sets have elements."""
    yield from _given_up(used)
    to_services = _to(layout.SERVICE_RANGES, verdict)
    yield from _by_daemon(used, to_services) if used & _LISTENER_SETS else _by_nobody(to_services)
    yield from _to_pools(used, verdict)


def served(farm: NodeFarm) -> Contents:
    """Return the elements for the addresses of a farm: at those of pools other ports are refused, not dropped."""
    ips = (each.ip for each in farm.addresses if each.type in ("LoadBalancer", "ExternalIP"))
    return Contents(frozenset(map(layout.served_address, ips)))


def _to(name: str, verdict: str, families: Iterable[TableFamily] = FAMILIES, but: str = "") -> tuple[str, ...]:
    """Return the rules for packets to an address of these ranges, which only Services have, that nobody has translated.

    They are for all of the addresses ``but`` those in other sets.

    The verdict is an element of a map. Where somebody deletes all tables, as ``flush ruleset`` does, the kernel takes
    the elements of all maps away at once, but unhooks one chain after the other: a verdict in the rule itself would
    refuse who comes between the end of the farms' elements and that of this chain.
    """
    return tuple(
        f"{family} daddr @{name}-{family} "
        + (f"{family} daddr != @{but}-{family} " if but else "")
        + f"meta nfproto vmap {{ {NFPROTO[family]} : {verdict} }}"
        for family in families
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


def _given_up(used: frozenset[str]) -> Iterator[Chain]:
    """Yield the chains that refuse clients where nftlb may have a farm that it is not to serve there.

    They come after the engine nftables has translated what it serves (-105), and before nftlb translates the rest
    (-100). So nobody has to know what the engine nftables serves, whether at the listener or at part of its address.
    """
    if rules := _at(layout.GIVEN_UP, "goto refuse", used):
        for hook in ("prerouting", "output"):
            yield Chain(f"unserved-given-up-{hook}", rules, f"type nat hook {hook} priority -103; policy accept;")


def _by_nobody(to_services: tuple[str, ...]) -> Iterator[Chain]:
    """Yield the chains for packets that no engine or other proxy has translated by now.

    They go to a port or an address without a Service. A chain of the type nat is for first packets alone.
    """
    for hook in ("prerouting", "output"):
        yield Chain(f"unserved-nat-{hook}", to_services, f"type nat hook {hook} priority -90; policy accept;")


def _by_daemon(used: frozenset[str], to_services: tuple[str, ...]) -> Iterator[Chain]:
    """Yield the chains for packets that nothing has translated so far, while nftlb serves farms.

    It may be making its rules anew. A packet that passed in that moment would be refused by who knows no Service, or
    never be translated, however often it is sent; one that is dropped is new when it comes again. To a process that
    sends UDP this is an error (EPERM), as with a firewall; TCP repeats without telling.
    """
    # What the node sends to itself is decided on as it leaves.
    arriving = _untranslated(used, 'iif "lo" return', *_at(layout.ANSWERED_HERE, "return", used))
    leaving = _untranslated(used, *_at(layout.NOT_FROM_NODE, "return", used))
    yield Chain("unserved", (*_untranslated(used), *to_services), hooks.filter_hook("forward", -5))
    yield Chain("unserved-input", arriving, hooks.filter_hook("input", -5))
    yield Chain("unserved-output", (*leaving, *to_services), hooks.filter_hook("output", -90))


def _to_pools(used: frozenset[str], verdict: str) -> Iterator[Chain]:
    """Yield the chain for packets from outside to addresses of pools that nothing has translated.

    The node would send them back: to a router that sends them here again, or to another node whose neighbour entry for
    the address is this one. They are refused at a port that a Service does not have, and dropped at an address that
    none has, as kube-proxy does at cluster IPs: the node may be about to program one, and who is refused does not try
    again.
    """
    families = [family for family in FAMILIES if f"{layout.POOL_RANGES}-{family}" in used]
    if families:
        to_pools = (f"{family} daddr @{layout.POOL_RANGES}-{family}" for family in families)
        rules = (
            "ct state established,related,untracked return",
            *(f"ct state invalid {match} goto no-connection" for match in to_pools),
            "ct status dnat return",
            *(_leaving_pods(family) for family in families),
            *_to(layout.POOL_RANGES, "drop", families, but=layout.SERVED_ADDRESSES),
            *_to(layout.POOL_RANGES, verdict, families),
        )
        yield Chain("no-connection", ("drop",))
        # After the chain that drops what nftlb is about to translate.
        yield Chain("unserved-pools", rules, hooks.filter_hook("forward", -4))


def _leaving_pods(family: TableFamily) -> str:
    """Return the rule for packets of this node's pods: another node may have programmed a new Service earlier.

    It is not for those that a router has sent back. They do not come from the interface of the pod; where the ranges of
    pods are those of the cluster, they leave by the interface that they came from.
    """
    return f"{layout.from_local_pods(family)} fib saddr . iif oif exists fib daddr . iif oif missing return"
