"""The policies, the farms that refer to them, and the rules that enforce them in the agent table. Pure: no I/O.

A farm has a chain per combination of policies, whose rules refer to what all farms share of these (``policy_sets``):
clients on a deny list are dropped; then, if there is an allow list, all that are on none. The elements of
``layout.POLICY`` for its listeners lead there. nftlb's own policies cannot be used: they work only if the address is on
a local interface, and its allow lists keep nobody out.

If a policy is missing or invalid, or the kernel refuses its ranges, the chain admits nobody. When that changes, farms
get other rules, in their turn. One that is not missing any more admits nobody until then. One that is gone admits
nobody at once, and is removed from the kernel once no rules refer to it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from operator import attrgetter

from kube_nftlb import names
from kube_nftlb.agent.table import layout, policy_sets
from kube_nftlb.agent.table.policy_references import References
from kube_nftlb.agent.table.policy_sets import EnforcedPolicy, Json
from kube_nftlb.api.base import Family
from kube_nftlb.api.budgets import policy_size
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.listeners import Listener
from kube_nftlb.api.policy import PolicyKey
from kube_nftlb.kube.fair_queue import FairQueue
from kube_nftlb.multimap import Multimap
from kube_nftlb.netfilter.table_text import Chain, Contents, Element
from kube_nftlb.reasons import FailureReason

_SETS_OF = "policy:"
_RULES_OF = "policies:"


class Policies:
    """The policies, the farms that refer to them, and changes that are not in the kernel yet."""

    def __init__(self) -> None:
        self.listed = False
        self.node_ips: Collection[str] = ()
        """The addresses of this node, at which node ports are."""
        self._policies: dict[PolicyKey, EnforcedPolicy] = {}
        self._generations: dict[PolicyKey, tuple[str, int]] = {}
        self._references: dict[FarmKey, References] = {}
        self._referring: Multimap[PolicyKey, FarmKey] = Multimap()
        self._refused: set[PolicyKey] = set()
        self._waiting: FairQueue[PolicyKey] = FairQueue(group=attrgetter("namespace"))
        self._in_work: dict[PolicyKey, int] = {}
        """Those that were taken, with the resourceVersion since which each waits."""
        self._raws: dict[PolicyKey, Json | None] = {}
        """The newest state of those that wait or were taken; None for one that was removed."""
        self._try_again: dict[PolicyKey, tuple[EnforcedPolicy, float]] = {}
        """Those whose ranges the kernel refused, as they should be, and when to try again."""
        self._gone: set[PolicyKey] = set()
        """Those to which rules in the kernel may still refer."""
        self._behind: dict[FarmKey, int] = {}
        """Farms without the rules for a policy that has come, with the resourceVersion since which it waits."""
        self._seen = 0
        self.changed_at = 0
        """The resourceVersion of the last change."""

    @property
    def count(self) -> int:
        """The number of policies."""
        return len(self._policies)

    def referring(self, key: PolicyKey) -> int:
        """Return how many farms refer to a policy."""
        return len(self._referring.get(key))

    # Events.

    def put(self, raw: Json, since: int | None = None) -> None:
        """Add or update a policy; ignore a known generation."""
        metadata = raw["metadata"]
        self._refused.discard(PolicyKey.of(raw))
        key, generation = PolicyKey.of(raw), (metadata.get("uid", ""), metadata.get("generation", 0))
        if self._generations.get(key) != generation:
            self._generations[key] = generation
            self._change(key, int(metadata["resourceVersion"]) if since is None else since, raw)

    def remove(self, key: PolicyKey, since: int) -> None:
        """Remove a policy."""
        self._refused.discard(key)
        if self._generations.pop(key, None) is not None:
            self._change(key, since, None)

    def refuse(self, key: PolicyKey) -> None:
        """Remove a policy that does not fit the limits of its namespace."""
        self.remove(key, self._seen + 1)
        self._refused.add(key)

    def replace_all(self, raws: Iterable[Json], resource_version: int) -> None:
        """Replace all policies; those not listed are removed."""
        present = {PolicyKey.of(raw): raw for raw in raws}
        since = self._seen + 1
        self._refused.clear()
        for key in self._generations.keys() - present.keys():
            self.remove(key, since)
        for raw in present.values():
            self.put(raw, since)
        self.listed = True
        self.seen(resource_version)

    def seen(self, resource_version: int) -> None:
        """Record how far the watch has come."""
        self._seen = max(self._seen, resource_version)

    def refer(self, farm: FarmKey, to: References | None) -> None:
        """Set the references of a farm; None removes them. Those before apply at the listeners that it leaves."""
        before = self._references.get(farm)
        self._set(farm, to.after(before) if to is not None and before is not None else to)

    def sending(self, farms: Iterable[FarmKey]) -> None:
        """Note that engines are asked for what the specs of farms say."""
        for farm in farms:
            if (to := self._references.get(farm)) is not None and not to.may_be_sent:
                self._references[farm] = to._replace(may_be_sent=True)

    def settle(self, farm: FarmKey, listeners: Collection[Listener]) -> None:
        """Note that engines have a farm at these listeners alone; it has left all others that its spec has no more."""
        if (to := self._references.get(farm)) is not None and to.earlier:
            self._set(farm, to.settled(listeners))

    def _set(self, farm: FarmKey, to: References | None) -> None:
        for key in _policies_of(self._references.pop(farm, None)):
            self._referring.discard(key, farm)
        if to is None:
            self._behind.pop(farm, None)
        keys = _policies_of(to)
        for key in keys:
            self._referring.add(key, farm)
        if to is not None and keys:
            self._references[farm] = to

    def _change(self, key: PolicyKey, since: int, raw: Json | None) -> None:
        # One that fits its budget again changed long ago.
        self._waiting.add(key, max(since, self._seen + 1))
        self._raws[key] = raw
        self.changed_at = max(self.changed_at, since)

    # Programming.

    @property
    def pending(self) -> bool:
        """True if there are changes to take."""
        return bool(self._waiting)

    @property
    def watermark(self) -> int:
        """The resourceVersion up to which every policy is in the kernel, and farms have the rules for it."""
        open_ = [*self._in_work.values(), *self._behind.values()]
        open_ += [oldest] if (oldest := self._waiting.oldest_since()) is not None else []
        return max(min(open_) - 1, 0) if open_ else self._seen

    def take(self, ranges: float = float("inf")) -> dict[PolicyKey, Json | None]:
        """Return the next changes, and those taken before that are not ``done``; None for a removed policy.

        Namespaces take turns. With ``ranges``, no more are taken once these have so many address ranges.
        """
        while self._waiting and ranges > 0:
            ((key, since),) = self._waiting.take(1).items()
            self._in_work[key] = min(since, self._in_work.get(key, since))
            raw = self._raws[key]
            ranges -= 1 + (policy_size(raw) if raw is not None else 0)
        return {key: self._raws[key] for key in self._in_work}

    def put_all(self, changed: Mapping[PolicyKey, EnforcedPolicy | None]) -> set[FarmKey]:
        """Set policies; None removes one. Return the farms whose rules change by that."""
        affected: set[FarmKey] = set()
        for key, new in changed.items():
            self._try_again.pop(key, None)
            was = self._policies.pop(key, None)
            if new is not None:
                self._policies[key] = new
            if _kind(was) == _kind(new):
                continue
            farms = self._referring.get(key)
            affected |= farms
            if self.enforces(key):
                self._gone.discard(key)
                since = self._in_work.get(key, self._seen + 1)
                self._behind |= {farm: self._behind.get(farm, since) for farm in farms}
            elif _kind(was):
                self._gone.add(key)
        return affected

    def enforces(self, key: PolicyKey) -> bool:
        """Return True if a policy is there, and its ranges are compared with clients."""
        return bool(_kind(self._policies.get(key)))

    def have_rules(self, farms: Iterable[FarmKey]) -> None:
        """Note that farms have the rules for their policies as they are now."""
        for farm in farms:
            self._behind.pop(farm, None)

    def refuse_ranges(self, key: PolicyKey, why: str, until: float) -> set[FarmKey]:
        """Note that the kernel refuses a policy's ranges. ``until``, in seconds of a clock, they are not tried again.

        Return the farms whose rules change by that.
        """
        if not self.enforces(key):
            return set()
        asked = self._policies[key]
        affected = self.put_all({key: EnforcedPolicy(refused=why)})
        self._try_again[key] = asked, until
        return affected

    def due(self, now: float) -> dict[PolicyKey, EnforcedPolicy]:
        """Return the policies whose ranges the kernel refused and that are to be tried again, as they should be."""
        return {key: asked for key, (asked, until) in self._try_again.items() if until <= now}

    def gone(self, is_used: Callable[[str], bool]) -> set[PolicyKey]:
        """Return policies that are gone and that no rules refer to any more, once; ``is_used`` tells that of a chain.

        Those that rules refer to are gone later.
        """
        chains = {key: policy_sets.admitting_nobody(key).chains for key in self._gone}
        unused = {key for key, found in chains.items() if not any(is_used(each.name) for each in found)}
        self._gone -= unused
        return unused

    def done(self) -> None:
        """Note that the changes taken are in the kernel."""
        self._in_work = {}
        self._raws = {key: raw for key, raw in self._raws.items() if key in self._waiting}

    # Contents of the agent table.

    def contents(self, keys: Iterable[PolicyKey] | None = None) -> dict[str, Contents]:
        """Return what the table is to have of policies, or of all there are, by owner."""
        return {owner(key): self._contents(key) for key in ({*self._policies, *self._gone} if keys is None else keys)}

    def _contents(self, key: PolicyKey) -> Contents:
        found = self._policies.get(key)
        if key in self._gone:
            return policy_sets.admitting_nobody(key)
        return found.contents if found is not None else Contents()

    def rules(self, key: FarmKey, farm: str, listeners: Iterable[Listener]) -> Contents:
        """Return the rules that apply a farm's policies at these listeners; ``farm`` is its name on the node."""
        if (to := self._references.get(key)) is None:
            return Contents()
        elements: set[Element] = set()
        chains: dict[str, Chain] = {}
        for listener in listeners:
            sets = sorted(map(sorted, to.of(listener, self.node_ips)))
            if any(sets):
                family: Family = "ipv6" if ":" in listener.ip else "ipv4"
                chain = names.policy_chain(farm, sets, ipv6=family == "ipv6")
                if chain not in chains:
                    chains[chain] = Chain(chain, tuple(self._rules(to.namespace, sets, family)))
                elements.add(layout.listener(layout.POLICY, listener, f"jump {chain}"))
        return Contents(frozenset(elements), tuple(chains.values()))

    def problem(self, key: FarmKey) -> tuple[FailureReason, str] | None:
        """Return the reason and message if a policy of a farm cannot be enforced, or None."""
        if (to := self._references.get(key)) is None:
            return None
        for name in sorted(to.all()):
            found = self._policies.get(PolicyKey(to.namespace, name))
            if found is None and PolicyKey(to.namespace, name) in self._refused:
                message = f"NftlbPolicy {name!r} exceeds the limits of its namespace; all clients' packets are dropped"
                return "PolicyInvalid", f"{message}; see its conditions"
            if found is None:
                message = f"NftlbPolicy {name!r} not found; all clients' packets are dropped until it exists"
                return "PolicyMissing", message
            if found.refused is not None:
                message = f"the kernel refuses the ranges of NftlbPolicy {name!r}; all clients' packets are dropped"
                return "Refused", f"{message}, and it is tried again each minute: {found.refused}"
            if found.invalid is not None:
                return (
                    "PolicyInvalid",
                    f"NftlbPolicy {name!r} is invalid; all clients' packets are dropped: {found.invalid}",
                )
        return None

    def _rules(self, namespace: str, sets: Collection[Collection[str]], family: Family) -> Iterable[str]:
        keys = [PolicyKey(namespace, name) for name in sorted({name for each in sets for name in each})]
        if not all(map(self.enforces, keys)):
            return ("drop",)
        # One list must not admit whom the list of another address keeps out.
        return policy_sets.rules(keys, family, admit=len(sets) == 1)


def owner(key: PolicyKey) -> str:
    """Return the owner of a policy's sets in the agent table."""
    return f"{_SETS_OF}{'.'.join(key)}"


def policy_of(owner_: str) -> PolicyKey | None:
    """Return the policy whose sets an owner has; None if it has no policy's."""
    if not owner_.startswith(_SETS_OF):
        return None
    namespace, _, name = owner_.removeprefix(_SETS_OF).partition(".")
    return PolicyKey(namespace, name)


def rules_owner(farm: str) -> str:
    """Return the owner of the rules that apply policies to a farm, by the farm's name on the node."""
    return f"{_RULES_OF}{farm}"


def farm_of(owner_: str) -> str:
    """Return the farm whose part of the agent table an owner has: its own, or its rules."""
    return owner_.removeprefix(_RULES_OF)


def _policies_of(to: References | None) -> list[PolicyKey]:
    if to is None:
        return []
    earlier = (name for sets in to.earlier.values() for each in sets for name in each)
    return [PolicyKey(to.namespace, name) for name in to.all().union(earlier)]


def _kind(policy: EnforcedPolicy | None) -> bool | None:
    """Return what the rules of farms, and what is told of them, depend on."""
    return bool(policy.contents) if policy is not None else None
