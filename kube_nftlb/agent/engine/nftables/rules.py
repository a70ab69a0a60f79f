"""The rules and declarations that the table is to have: what the kernel makes of them, and how it deviates."""

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache, partial

from kube_nftlb.agent.engine.nftables import affinity, layout, scheduling, skeleton
from kube_nftlb.agent.engine.nftables.layout import TABLE, TableFamily
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.netfilter.nftables import messages
from kube_nftlb.netfilter.nftables.blueprint import Blueprint
from kube_nftlb.netfilter.nftables.contents import Maker, RuleContents, SetContents, TableContents
from kube_nftlb.netfilter.nftables.messages import Message
from kube_nftlb.netfilter.nftables.reading import ContentsReader
from kube_nftlb.netfilter.nftables.transaction import Transactions


class TableRules:
    """The table as it is to be without elements of farms, in the kernel's own form."""

    def __init__(self, nft: Nftables, netfilter: Transactions, reader: ContentsReader) -> None:
        self._reader = reader
        self._netfilter = netfilter
        self._blueprint = Blueprint(nft, reader, TABLE)
        self._skeleton: TableContents | None = None
        self._chains: dict[str, tuple[RuleContents, ...]] = {}
        """The rules of the chains that elements lead to, by name, once they were read."""
        self._maps: dict[str, SetContents] = {}
        """The same for the maps that these use."""
        self.local_pods: Mapping[TableFamily, tuple[str, ...]] = {}
        """The ranges of this node's pods."""

    def set_local_pods(self, ranges: Mapping[TableFamily, tuple[str, ...]]) -> None:
        """Set the ranges of this node's pods."""
        self.local_pods = dict(ranges)
        self._skeleton = None

    async def creation(self) -> list[Message]:
        """Return what creates the table without farms, whatever there was."""
        return list(Maker(TABLE).table(await self._base(())))

    async def wanted(self, chains: Collection[str]) -> TableContents:
        """Return what the table is to have if elements lead to these chains. Raises KernelError."""
        base = await self._base(chains)
        # Others are forgotten: namespaces and group sizes come and go.
        self._chains = {name: self._chains[name] for name in chains}
        self._maps = {name: self._maps[name] for name in _maps(chains)}
        return TableContents(
            {**base.sets, **self._maps},
            {**base.chains, **dict.fromkeys(chains, b"")},
            {**base.rules, **self._chains},
        )

    async def found(self) -> TableContents:
        """Return what the kernel has of it."""
        return await self._reader.contents(TABLE, _is_interval)

    async def _base(self, chains: Collection[str]) -> TableContents:
        unknown = {name for name in chains if name not in self._chains}
        unknown |= {chain for name in unknown for chain in scheduling.leads_to(name)}
        if self._skeleton is None or unknown:
            name = self._blueprint.table
            add = partial(self._netfilter.commit, list(new_chains(unknown, (), name)))
            read = await self._blueprint.read(_dormant(self.local_pods, name), _is_interval, add)
            maps = _maps(unknown)
            self._chains |= {chain: read.rules.get(chain, ()) for chain in unknown}
            self._maps |= {map_: read.sets[map_] for map_ in maps}
            self._skeleton = TableContents(
                {map_: each for map_, each in read.sets.items() if map_ not in maps},
                {chain: each for chain, each in read.chains.items() if chain not in unknown},
                {chain: rules for chain, rules in read.rules.items() if chain not in unknown},
            )
        return self._skeleton


def _maps(chains: Collection[str]) -> set[str]:
    return {layout.affinity_map(*each) for each in affinity.maps(chains)}


def new_chains(needed: Collection[str], known: Collection[str], table: str = TABLE) -> Iterator[Message]:
    """Yield what adds the chains that elements lead to, and the maps that they use, to a table that has those known."""
    # Mostly there is none, and thousands are known.
    if not (new := set(needed).difference(known)):
        return
    for family, namespace in sorted(affinity.maps(new) - affinity.maps(known)):
        yield affinity.new_map(family, namespace, table)
    for name in sorted(new, key=scheduling.rank):
        yield from _new_chain(table, name)


@lru_cache(maxsize=4096)
def _new_chain(table: str, name: str) -> tuple[Message, ...]:
    return tuple(messages.new_chain(table, name, scheduling.parse(name).rules()))


def is_scheduling(name: str) -> bool:
    """Return True if elements may lead to a chain of this name."""
    try:
        scheduling.parse(name)
    except ValueError:
        return False
    return True


def can_be_mended(wanted: TableContents, found: TableContents) -> bool:
    """Return True if the table can be brought to what is wanted without losing what it has."""
    both = wanted.sets.keys() & found.sets.keys()
    return all(wanted.sets[name].declaration == found.sets[name].declaration for name in both)


def mended(wanted: TableContents, found: TableContents) -> tuple[list[Message], list[Message]]:
    """Return what is to be done before elements change, and after that, to bring all else to what is wanted."""
    maker = Maker(TABLE)
    hooked = {name for name, each in found.chains.items() if wanted.chains.get(name, each) != each}
    added = {name for name in wanted.chains if name not in found.chains} | hooked
    gone = found.chains.keys() - wanted.chains.keys()
    changed = {name for name in wanted.chains if wanted.content_of(name) != found.content_of(name)} | added
    before = [messages.flush_chain(TABLE, name) for name in sorted((changed | gone) & found.chains.keys())]
    before += [messages.delete_chain(TABLE, name) for name in sorted(hooked)]
    before += [maker.chain(name, wanted) for name in wanted.chains if name in added]
    before += [each for name in wanted.sets if name not in found.sets for each in maker.set_(name, wanted.sets[name])]
    after = [messages.delete_chain(TABLE, name) for name in sorted(gone)]
    for name, each in wanted.sets.items():
        if name in found.sets and each.elements != found.sets[name].elements:
            after += maker.refilled(name, each)
    after += [messages.delete_set(TABLE, name) for name in sorted(found.sets.keys() - wanted.sets.keys())]
    after += [message for name in wanted.chains if name in changed for message in maker.rules(name, wanted)]
    return before, after


def _is_interval(of: SetContents) -> bool:
    return of.is_interval


def _dormant(local_pods: Mapping[TableFamily, tuple[str, ...]], name: str) -> str:
    commands = skeleton.creation().replace(f"inet {TABLE} {{\n", f"inet {TABLE} {{\n\tflags dormant;\n")
    return (commands + skeleton.local_pods(local_pods)).replace(f"inet {TABLE}", f"inet {name}")
