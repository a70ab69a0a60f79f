"""nft(8) and a kernel with one table."""

import copy
from collections.abc import Callable, Container, Iterable, Mapping

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftables.layout import listener_key
from kube_nftlb.agent.table.layout import TABLE, of_listener
from kube_nftlb.netfilter.netlink import attribute
from kube_nftlb.netfilter.nftables.blueprint import blueprint_of
from kube_nftlb.netfilter.nftables.contents import ELEMENT_KEY, VALUE, RuleContents, SetContents, TableContents
from kube_nftlb.netfilter.table_text import Element

EVERYBODY = "0.0.0.0-255.255.255.255"


class FakeNft:
    """Keeps the commands that it was to run, and what they make of one table."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.error: str | None = None
        self.lacks: tuple[str, ...] = ()
        """Words that the kernel knows nothing of."""
        self.chains: dict[str, list[str]] = {}
        self.sets: dict[str, dict[str, str]] = {}
        self.blueprint: FakeNft | None = None
        """The table that the other one is compared with."""

    async def check(self, commands: str) -> str | None:
        return next((f"nftables refused: Error: {word}" for word in self.lacks if word in commands), None)

    async def run(self, commands: str) -> None:
        if blueprint_of(TABLE) in commands:
            self.blueprint = self.blueprint or FakeNft()
            await self.blueprint.run(commands.replace(blueprint_of(TABLE), TABLE))
            return
        if (refusal := self.error or await self.check(commands)) is not None:
            raise errors.KernelError(refusal)
        before = copy.deepcopy((self.chains, self.sets))
        try:
            for line in commands.splitlines():
                verb, _, rest = line.partition(" ")
                kind, _, rest = rest.partition(" ")
                name, _, rest = rest.removeprefix("helper ").removeprefix("inet kube-nftlb ").partition(" ")
                self._run(verb, kind, name, rest)
        except KeyError as error:
            self.chains, self.sets = before
            raise errors.KernelError(f"nftables refused: Error: No such file or directory: {error}") from None
        self.commands.append(commands)

    def _run(self, verb: str, kind: str, name: str, rest: str) -> None:
        match verb, kind:
            case "delete", "table":
                self.damage()
            case "add", "rule":
                self.chains[name].append(rest)
            case "add", "element":
                self.sets[name].update(dict.fromkeys(_keys(rest), rest))
            case "delete", "element":
                for key in _keys(rest):
                    del self.sets[name][key]
            case (("add" | "flush"), "chain"):
                self.chains[name] = []
            case (("add" | "flush"), _):
                self.sets[name] = {}
            case "delete", "chain":
                del self.chains[name]
            case "delete", _:
                del self.sets[name]

    def damage(self) -> None:
        """Somebody removes the table."""
        self.chains, self.sets = {}, {}


def rules_met(chain: str, chains: Mapping[str, Iterable[str]], sets: Mapping[str, Container[str]]) -> list[str]:
    """The rules that packets meet in a chain, and in those that it leads to: not those that match nobody."""
    found: list[str] = []
    for rule in chains.get(chain, ()):
        looked_up = rule.partition("@")[2].partition(" ")[0]
        if rule.startswith(("jump ", "goto ")):
            found += rules_met(rule.partition(" ")[2], chains, sets)
        elif not looked_up or sets[looked_up]:
            found.append("drop" if looked_up and EVERYBODY in sets[looked_up] else rule)
        if found[-1:] == ["drop"]:
            break
    return found


class FakeTableReader:
    """Reads what ``FakeNft`` holds. ``engine_writes`` counts the transactions of an engine."""

    def __init__(self, nft: FakeNft, engine_writes: Callable[[], int]) -> None:
        self._nft = nft
        self._engine_writes = engine_writes
        self.foreign_changes = 0
        self._told = 0

    async def generation(self) -> int:
        return self._engine_writes() + len(self._nft.commands) + self.foreign_changes

    def others(self) -> set[str]:
        told, self._told = self._told, self.foreign_changes
        return {"nft"} if told != self._told else set()

    @property
    def pending(self) -> bool:
        return self._told != self.foreign_changes

    async def contents(self, table: str, with_elements: Callable[[SetContents], bool]) -> TableContents:
        nft = self._nft if table == TABLE else self._nft.blueprint
        if nft is None:
            return TableContents()
        return TableContents(
            {name: SetContents(b"", frozenset(_element(name, key) for key in each)) for name, each in nft.sets.items()},
            dict.fromkeys(nft.chains, b""),
            {
                name: tuple(RuleContents((rule.encode(),), {}) for rule in rules)
                for name, rules in nft.chains.items()
                if rules
            },
        )


def _element(set_: str, key: str) -> bytes:
    """Return an element as the kernel tells it, if it is one for a listener."""
    listener = of_listener(Element(set_, key))
    return attribute(ELEMENT_KEY, attribute(VALUE, listener_key(listener))) if listener is not None else key.encode()


def _keys(elements: str) -> list[str]:
    return [element.partition(" : ")[0].strip() for element in elements.strip("{} ").split(",")]
