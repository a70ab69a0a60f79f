"""The agent table in the kernel: the contents of all owners, each change in one transaction."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kube_nftlb import errors
from kube_nftlb.agent.table import refusals
from kube_nftlb.agent.table.base import SET_NAMES, base, environment
from kube_nftlb.agent.table.layout import ENVIRONMENT, POOLS, TABLE
from kube_nftlb.agent.table.policies import policy_of, rules_owner
from kube_nftlb.agent.table.unserved import POOL_SETS
from kube_nftlb.netfilter.libnftables import Nftables
from kube_nftlb.netfilter.nftables.blueprint import Blueprint
from kube_nftlb.netfilter.nftables.contents import SetContents, TableContents
from kube_nftlb.netfilter.nftables.reading import ContentsReader
from kube_nftlb.netfilter.table_text import Chain, Contents, State, changes, combined, creation

_NOTHING = Contents()
_WAITING = 0x5A5A5A5A5A5A5A5A
"""What tells the digest of a table that lets clients wait from that of one that refuses them."""


class AgentTable:
    """The table in the kernel, and the contents of each owner."""

    def __init__(self, nft: Nftables, always: Contents = _NOTHING) -> None:
        """Take contents that belong to no owner, and are ``always`` there."""
        self._nft = nft
        self._always = always
        self.fallback: Callable[[str], Contents] = lambda _: Contents()
        """Returns the contents of a farm if the kernel refuses its own when the table is created, and those of a
        policy if it refuses them at any time, by ``refusals.subject``: then all the rules that refer to it are kept."""
        self._owners: dict[str, Contents] = {}
        self._digest = 0
        self._present: dict[tuple[str, str], dict[str, str]] = {}
        self._elements: Counter[str] = Counter()
        self._jumps: Counter[str] = Counter()
        """How many rules lead to each chain."""
        self.lets_wait = False
        """True while packets for Services that nobody translates are dropped, so that clients repeat them; else they
        are refused. Takes effect with ``create``."""
        self.expect({})

    @property
    def digest(self) -> int:
        """A digest of the desired state."""
        return self._digest ^ (_WAITING if self.lets_wait else 0)

    @property
    def state(self) -> State:
        """The desired state, with a chain whose name is a digest of it.

        By that name a restarted agent recognizes a table that needs no change.
        """
        return combined([self._base(), self._always, *self._owners.values(), self._seal()])

    def _base(self) -> Contents:
        pools = (each.name for each in self.owned(POOLS).sets)
        return base(frozenset((*self._elements, *pools)), self.lets_wait)

    @property
    def seal(self) -> str:
        """The name of the chain by which the state is known."""
        return f"state-{self.digest:016x}"

    def _seal(self) -> Contents:
        return Contents(chains=(Chain(self.seal, ("return",)),))

    async def blueprint(self, reader: ContentsReader, with_elements: Callable[[SetContents], bool]) -> TableContents:
        """Return what the kernel makes of the desired state. Raises KernelError."""
        blueprint = Blueprint(self._nft, reader, TABLE)
        return await blueprint.read(creation(blueprint.table, self.state, dormant=True), with_elements)

    async def refuse(self) -> None:
        """Have packets refused that nobody translates, if clients wait so far."""
        if self.lets_wait:
            before = self._part((), ())
            self.lets_wait = False
            try:
                await self._nft.run(changes(TABLE, before, self._part((), ())))
            except errors.KernelError:
                # Somebody has changed the table: the difference cannot be applied, the whole can.
                await self.create()

    def owned(self, owner: str) -> Contents:
        """Return the contents of an owner."""
        return self._owners.get(owner, _NOTHING)

    def is_used(self, chain: str) -> bool:
        """Return True if a rule of any owner leads to a chain."""
        return chain in self._jumps

    def restricts(self, farm: str) -> bool:
        """Return True if the table has anything of a farm, by its name on the node."""
        return bool(self.owned(farm) or self.owned(rules_owner(farm)))

    async def create(self) -> dict[str, str]:
        """Recreate the table, with all contents, in one transaction.

        Farms and policies whose contents the kernel refuses get ``fallback``. Return these, by ``refusals.subject``,
        with the kernel's message. Raises KernelError if the kernel refuses contents that belong to neither.
        """
        return await self._create({})

    async def _create(self, earlier: Mapping[str, Contents]) -> dict[str, str]:
        try:
            await self._nft.run(creation(TABLE, self.state))
        except errors.KernelError:
            if not (refused := await self._refused(self._owners)):
                raise
            for each in refused:
                self._swap(self._instead(each, earlier))
            await self._nft.run(creation(TABLE, self.state))
            return refused
        return {}

    def expect(self, owners: Mapping[str, Contents]) -> None:
        """Set all owners and their contents without touching the kernel."""
        # Another version of the agent may have other rules.
        self._owners, self._present, self._elements, self._jumps = {}, {}, Counter(), Counter()
        self._digest = _digest("", base(SET_NAMES | POOL_SETS) | self._always)
        for owner, contents in {ENVIRONMENT: environment({}, {}), **owners}.items():
            self._hold(owner, contents)

    async def update(self, owners: Mapping[str, Contents]) -> dict[str, str]:
        """Set the contents of these owners in one transaction; none is sent if nothing changes.

        Farms whose new contents the kernel refuses keep what they have, and policies get ``fallback``. Returns and
        raises as ``create`` does.
        """
        changed = {owner: new for owner, new in owners.items() if self.owned(owner) != new}
        if not changed:
            return {}
        earlier = {owner: self.owned(owner) for owner in changed}
        keys = {key for owner in changed for key in _keys(earlier[owner]) | _keys(changed[owner])}
        before = self._part(keys, changed)
        self._swap(changed)
        try:
            await self._nft.run(changes(TABLE, before, self._part(keys, changed)))
        except errors.KernelError:
            if refused := await self._refused(changed):
                instead = {owner: new for each in refused for owner, new in self._instead(each, earlier).items()}
                self._swap(earlier)
                return refused | await self.update(changed | instead)
            # Somebody has changed the table: the difference cannot be applied, the whole can.
            return await self._create(earlier)
        return {}

    def _instead(self, subject: str, earlier: Mapping[str, Contents]) -> dict[str, Contents]:
        """Return what a subject has in place of contents that the kernel refuses, by owner.

        A farm that is being changed has what it had ``earlier``. Of a policy that does not say whom it admits now.
        """
        owners = refusals.owners(subject)
        if policy_of(subject) is None and (had := {owner: earlier[owner] for owner in owners if owner in earlier}):
            return had
        return dict.fromkeys(owners, _NOTHING) | {subject: self.fallback(subject)}

    async def _refused(self, owners: Iterable[str]) -> dict[str, str]:
        """Return who of these has contents that the kernel refuses in a table of their own, with its messages."""
        subjects = (subject for owner in owners if (subject := refusals.subject(owner)) is not None)
        return await refusals.refused(subjects, self._check)

    async def _check(self, subjects: Sequence[str]) -> str | None:
        """Return why the kernel refuses a table with what these have, and the agent itself, or None."""
        present = {*subjects, None}
        contents = [contents for owner, contents in self._owners.items() if refusals.subject(owner) in present]
        # Rules may refer to them.
        contents.extend(
            self.fallback(owner) for owner in self._owners if policy_of(owner) is not None and owner not in present
        )
        used = frozenset(entry.set for each in contents for entry in each.elements)
        used |= POOL_SETS & {named.name for each in contents for named in each.sets}
        return await self._nft.check(creation(TABLE, combined([base(used, self.lets_wait), self._always, *contents])))

    def _part(self, keys: Iterable[tuple[str, str]], owners: Iterable[str]) -> State:
        """Return the state of these keys and owners, and of what all share; other owners cost nothing."""
        own = combined(
            [
                self._base(),
                self._always,
                *(self._owners[owner] for owner in owners if owner in self._owners),
                self._seal(),
            ]
        )
        values = {key: self._present[key] for key in keys if key in self._present}
        # An element of several owners has the value of the last of them, and stays until the last is gone.
        return State({key: list(by_owner.values())[-1] for key, by_owner in values.items()}, own.chains, own.sets)

    def _swap(self, owners: Mapping[str, Contents]) -> None:
        for owner, contents in owners.items():
            self._release(owner)
            self._hold(owner, contents)

    def _hold(self, owner: str, contents: Contents) -> None:
        if contents:
            self._owners[owner] = contents
            self._digest ^= _digest(owner, contents)
            self._jumps.update(_jumps(contents))
            for entry in contents.elements:
                by_owner = self._present.setdefault((entry.set, entry.key), {})
                self._elements[entry.set] += not by_owner
                by_owner[owner] = entry.value

    def _release(self, owner: str) -> None:
        contents = self._owners.pop(owner, Contents())
        if contents:
            self._digest ^= _digest(owner, contents)
        for chain in _jumps(contents):
            self._jumps[chain] -= 1
            if not self._jumps[chain]:
                del self._jumps[chain]
        for key in _keys(contents):
            del self._present[key][owner]
            if not self._present[key]:
                del self._present[key]
                self._elements -= Counter((key[0],))


def _keys(contents: Contents) -> set[tuple[str, str]]:
    return {(entry.set, entry.key) for entry in contents.elements}


def _jumps(contents: Contents) -> Iterator[str]:
    rules = (rule.rpartition(" ") for chain in contents.chains for rule in chain.rules)
    return (to for match, _, to in rules if match.endswith(("jump", "goto")))


def _digest(owner: str, contents: Contents) -> int:
    text = repr((owner, sorted(contents.elements), contents.chains, contents.sets))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
