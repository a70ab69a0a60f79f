"""Options of a farm that the agent table implements: limits, logs, helpers, queues, source addresses. Pure: no I/O.

They are here and not in an engine so that all engines share them. nftlb has most of them, but its rules do not survive
a second address, or a second farm with the same helper or marks (docs/nftlb-defects.md).
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kube_nftlb.agent.table import layout
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.api.limits import Limits
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.values import KERNEL_HELPERS, RATE_SECONDS
from kube_nftlb.netfilter.table_text import ADDRESS_TYPE, Chain, Contents, Element, NamedSet

FORGET_S = 120
"""The default time after which a silent client is forgotten, as with nftlb."""


class _Limit(NamedTuple):
    """One of a farm's limits: the set of its clients, the rule, and the chain for what is above."""

    clients: NamedSet | None
    rule: str
    over: Chain


def contents(spec: FarmSpec, name: str, listeners: Iterable[Listener]) -> Contents:
    """Return the agent table's part for a farm's options; ``name`` is the farm's name on the node."""
    return _Options(spec, name, listeners).contents()


class _Options:
    def __init__(self, spec: FarmSpec, name: str, listeners: Iterable[Listener]) -> None:
        self._spec, self._name, self._listeners = spec, name, list(listeners)
        self._family = layout.TABLE_FAMILY[spec.family]

    def contents(self) -> Contents:
        clients, rates, resets = self._established(), self._new(), self._resets()
        strict, backends = self._strict(), list(self._backend_limits())
        limits = [limit for limit in (clients, rates, resets, strict, *backends) if limit is not None]
        helper = self._helper()
        chains = {
            layout.CONNECTIONS: (
                *(limit.rule for limit in (rates, clients) if limit is not None),
                *((f'ct helper set "{helper.name}"',) if helper else ()),
                *self._log("input", "IN"),
            ),
            layout.RESETS: (resets.rule,) if resets else (),
            layout.INVALIDS: (strict.rule,) if strict else (),
            layout.QUEUES: self._queue(),
            layout.FORWARDED: self._log("forward", "FWD"),
            layout.LEAVING: (*(limit.rule for limit in backends), *self._log("output", "OUT")),
        }
        named = {map_: Chain(f"{map_}-{self._name}", rules) for map_, rules in chains.items() if rules}
        return Contents(
            frozenset((*self._jumps(named), *self._cut(), *self._sources(), *self._marks())),
            (*named.values(), *(limit.over for limit in limits)),
            (*(limit.clients for limit in limits if limit.clients is not None), *((helper,) if helper else ())),
        )

    def _jumps(self, chains: dict[str, Chain]) -> Iterator[Element]:
        for listener in self._listeners:
            for map_, chain in chains.items():
                yield layout.listener(map_, listener, f"jump {chain.name}")

    def _cut(self) -> Iterator[Element]:
        if self._spec.on_gone == "cut" and self._spec.protocol in ("TCP", "All"):
            for listener in self._listeners:
                yield layout.listener(layout.CUT, listener, layout.REFUSE)

    def _sources(self) -> Iterator[Element]:
        for listener in self._listeners:
            if self._spec.source_address is not None:
                yield layout.listener(layout.SOURCES, listener, self._spec.source_address)
            for ip, source in {b.ip: b.source_address for b in self._spec.backends if b.source_address}.items():
                entry = layout.listener(layout.BACKEND_SOURCES, listener, source)
                yield entry._replace(key=f"{entry.key} . {ip}")

    def _marks(self) -> Iterator[Element]:
        # nftlb sets marks itself: it tells backends apart by them.
        if self._spec.engine == "nftlb":
            return
        own = int(self._spec.mark or "0", 16)
        backends = {each.ip: own | each.mark for each in self._spec.backends if each.mark is not None}
        for listener in self._listeners:
            if own or backends:
                yield layout.listener(layout.MARKED, listener)
            if own:
                yield layout.listener(layout.MARKS, listener, f"{own:#x}")
            for ip, mark in backends.items():
                entry = layout.listener(layout.BACKEND_MARKS, listener, f"{mark:#x}")
                yield entry._replace(key=f"{entry.key} . {ip}")

    def _log(self, where: str, kind: str) -> tuple[str, ...]:
        if where not in self._spec.log.split():
            return ()
        return (_log_rule(f"{kind}-{self._spec.log_prefix or self._name}"),)

    def _queue(self) -> tuple[str, ...]:
        # Without a program that asks for them packets go on.
        return (f"queue num {self._spec.queue} bypass",) if self._spec.queue is not None else ()

    def _helper(self) -> NamedSet | None:
        if self._spec.helper == "none":
            return None
        # An object cannot be changed: another helper needs another one.
        declaration = helper_declaration(self._spec)
        return NamedSet(self._set_name("helper", declaration), declaration, kind="ct helper")

    def _new(self) -> _Limit | None:
        limits = self._spec.limits
        return self._rate("new-rtlimit", limits.new, limits.new_burst, limits.new_log_prefix)

    def _resets(self) -> _Limit | None:
        limits = self._spec.limits
        return self._rate("rst-rtlimit", limits.reset, limits.reset_burst, limits.reset_log_prefix)

    def _rate(self, kind: str, rate: str | None, burst: int, prefix: str | None) -> _Limit | None:
        if rate is None:
            return None
        forget_s = self._spec.limits.forget_seconds or max(FORGET_S, RATE_SECONDS[rate.partition("/")[2]])
        # A client in the set keeps the rate that it was added with: another rate needs another set.
        limit = f"limit rate over {rate} burst {burst} packets"
        declaration = f"{self._clients_declaration()} timeout {forget_s}s;"
        clients = NamedSet(self._set_name(kind, declaration + limit), declaration)
        return self._limit(kind, f"update @{clients.name} {{ {self._family} saddr {limit} }}", prefix, clients)

    def _established(self) -> _Limit | None:
        limits = self._spec.limits
        if limits.established is None:
            return None
        limit = f"ct count over {limits.established}"
        declaration = self._clients_declaration()
        clients = NamedSet(self._set_name("est-connlimit", declaration + limit), declaration)
        rule = f"add @{clients.name} {{ {self._family} saddr {limit} }}"
        return self._limit("est-connlimit", rule, limits.established_log_prefix, clients)

    def _strict(self) -> _Limit | None:
        limits = self._spec.limits
        return self._limit("tcp-strict", "", limits.tcp_strict_log_prefix) if limits.tcp_strict else None

    def _backend_limits(self) -> Iterator[_Limit]:
        for backend in self._spec.backends:
            if backend.established is not None:
                port = f" th dport {backend.port}" if backend.port is not None else ""
                match = f"{self._family} daddr {backend.ip}{port} ct count over {backend.established}"
                yield self._limit(
                    f"est-connlimit-{_digest(f'{backend.ip} {backend.port}')}", match, backend.established_log_prefix
                )

    def _limit(self, kind: str, match: str, prefix: str | None, clients: NamedSet | None = None) -> _Limit:
        over = Chain(f"over-{kind}-{self._name}", _above(self._spec.limits, prefix or f"{kind}-{self._name}"))
        return _Limit(clients, f"{match} jump {over.name}".strip(), over)

    def _clients_declaration(self) -> str:
        # Without a size it takes 65,535 clients, and grows as they come. With one, kernels such as 6.1 allocate the
        # buckets for all of them at once: 1 MiB for each limit of each farm.
        return f"type {ADDRESS_TYPE[self._family]}; flags dynamic;"

    def _set_name(self, kind: str, content: str) -> str:
        return f"{kind}-{_digest(content)}-{self._name}"


def helper_declaration(spec: FarmSpec) -> str:
    """Return the declaration of a ct helper object, without braces."""
    kernel = KERNEL_HELPERS[spec.helper, spec.protocol]
    return f'type "{kernel}" protocol {spec.protocol.lower()}; l3proto {layout.TABLE_FAMILY[spec.family]};'


def _above(limits: Limits, prefix: str) -> tuple[str, ...]:
    """Return the rules for a packet above a limit."""
    rules = []
    if "log" in limits.verdict.split():
        rate = f"limit rate {limits.log_rate} " if limits.log_rate is not None else ""
        rules.append(rate + _log_rule(prefix))
    if "drop" in limits.verdict.split():
        rules.append("drop")
    return tuple(rules)


def _log_rule(prefix: str) -> str:
    return f'log prefix "{prefix} "'


def _digest(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"
