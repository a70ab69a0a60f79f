"""The farms as a node knows them, and what its nftlb and the agent's own table shall have of each.

Nothing is changed here: who applies it is the loop (``reconcile``).
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

import structlog

from kube_nftlb import names
from kube_nftlb.agent.dsr import modes
from kube_nftlb.agent.dsr.pod_addresses import Segment
from kube_nftlb.agent.endpoints import selection
from kube_nftlb.agent.engine.nftlb import translate as view
from kube_nftlb.agent.engine.nftlb.engine import NftlbEngine
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.agent.sync.problems import Problems, where
from kube_nftlb.agent.sync.progress import Problem
from kube_nftlb.agent.table import farm_options, kernel_features, policies, traffic_policy
from kube_nftlb.agent.table.kernel_features import Feature
from kube_nftlb.agent.table.policies import Policies
from kube_nftlb.agent.table.table import OwnTable
from kube_nftlb.api.conflicts import Conflicts, FarmKey, rank
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.listeners import Listener, listeners_of
from kube_nftlb.netfilter.transaction import Contents
from kube_nftlb.nftlb import objects
from kube_nftlb.reasons import FailureReason

_log = structlog.get_logger()

RETRY_S = 60
"""How long a farm that nftlb or the kernel refused is left alone, unless it changes."""

FarmState = Literal["programmed", "pending", "failed", "refused"]
"""What ``Farms.states`` tells apart."""

_SEE_HOLDER = "that farm stays as it is since this agent cannot make it what its spec says; mend or delete it"


class Farms:
    """All farms that the watch has told of."""

    def __init__(
        self, engine: NftlbEngine, table: OwnTable, segment: Segment, known_policies: Policies, problems: Problems
    ) -> None:
        self._engine = engine
        self._table = table
        self._segment = segment
        self._policies = known_policies
        self._problems = problems
        self._farms: dict[FarmKey, Farm] = {}
        self._keys: dict[str, FarmKey] = {}
        self._conflicts = Conflicts(lambda farm: listeners_of(farm, self._facts.port_ips.get(farm.spec.family, ())))
        self._facts = NodeFacts()
        self._kernel_has: dict[Feature, bool] = {}
        self._unprobed: set[FarmKey] = set()
        """Those that came or changed since the kernel was last asked what it has."""
        self._frozen: set[FarmKey] = set()
        """Those whose spec is not understood."""
        self._guarded: set[FarmKey] = set()
        """Of these, those that ask for something else than policies that keeps clients out."""
        self._impossible: set[FarmKey] = set()
        """Those that cannot be as they are asked for, as far as was found out when they were last looked at."""
        self._rejected: dict[FarmKey, str] = {}
        """Those whose contents of the own table the kernel does not take, and what is said."""
        self._hindered: dict[FarmKey, Problem] = {}
        self._short: set[FarmKey] = set()
        self._left_until: dict[FarmKey, float] = {}

    # What the watch tells. Whom it concerns is to be looked at.

    def put(self, farm: Farm) -> set[FarmKey]:
        """A farm was created or changed; nobody is concerned where its generation is known already."""
        key = FarmKey(farm.metadata.namespace, farm.metadata.name)
        known = self._farms.get(key)
        # Who controls a farm decides about its addresses, and does not count as a generation.
        if known is not None and _generation(known) == _generation(farm) and rank(known) == rank(farm):
            return set()
        self._farms[key] = farm
        self._unprobed.add(key)
        self._thaw(key)
        self._keys[names.nftlb_farm_name(*key)] = key
        self._left_until.pop(key, None)
        self._rejected.pop(key, None)
        self._problems.changed(key)
        self._policies.refer(key, policies.references(farm))
        return {key, *self._conflicts.put(farm)}

    def freeze(self, key: FarmKey, problem: Problem, refers: policies.References | None) -> None:
        """A farm is not understood: it stays as it is. ``refers`` is what is believed of one that never was."""
        if key not in self._farms:
            self._policies.refer(key, refers)
        self._frozen.add(key)
        if refers is not None and refers.unread:
            self._guarded.add(key)
        self._keys[names.nftlb_farm_name(*key)] = key
        self._problems.tell(key, problem, self._farms.get(key))

    def remove(self, key: FarmKey) -> set[FarmKey]:
        """A farm was deleted."""
        self._problems.gone(key)
        self._hindered.pop(key, None)
        self._rejected.pop(key, None)
        self._short.discard(key)
        self._unprobed.discard(key)
        if self._farms.pop(key, None) is None and key not in self._frozen:
            return set()
        self._thaw(key)
        return {key, *self._conflicts.remove(key)}

    def _thaw(self, key: FarmKey) -> None:
        self._frozen.discard(key)
        self._guarded.discard(key)

    def learn(self, facts: NodeFacts) -> None:
        """The node is another one; that concerns all farms."""
        self._facts = facts
        for farm in self._farms.values():
            self._conflicts.put(farm)

    async def probe(self) -> None:
        """Find out what the kernel has of what farms need, before any of them is viewed; once while the agent runs."""
        while self._unprobed:
            key = next(iter(self._unprobed))
            farm = self._farms[key]
            for feature in kernel_features.needed(farm.spec):
                if feature not in self._kernel_has:
                    self._kernel_has[feature] = await self._table.possible(feature.probe)
            # It may have changed, or gone, meanwhile.
            if self._farms.get(key) is farm:
                self._unprobed.discard(key)

    # What there is.

    @property
    def facts(self) -> NodeFacts:
        """The node, as far as farms depend on it."""
        return self._facts

    def __iter__(self) -> Iterator[FarmKey]:
        """Those that were understood, now or earlier."""
        return iter(self._farms)

    def __contains__(self, key: FarmKey) -> bool:
        return key in self._farms

    def get(self, key: FarmKey) -> Farm | None:
        """A farm as it was last understood."""
        return self._farms.get(key)

    def key(self, name: str) -> FarmKey | None:
        """Which farm has a name in nftlb; of one that was deleted until nftlb has nothing of it any more."""
        return self._keys.get(name)

    def all(self) -> set[FarmKey]:
        """Also those that were never understood."""
        return self._farms.keys() | self._frozen

    def named(self) -> dict[str, FarmKey]:
        """All of them by their names in nftlb."""
        return {name: key for name, key in self._keys.items() if key in self._farms or key in self._frozen}

    def served(self) -> dict[str, objects.Farm]:
        """What nftlb has for a farm that there is; farms that were retired are not among it."""
        return {name: farm for name, farm in self._engine.present.items() if name in self._keys}

    def stateless(self, keys: Iterable[FarmKey] | None = None) -> list[FarmKey]:
        """Those of these, or of all, whose mode keeps no connections."""
        some = self._farms if keys is None else [key for key in keys if key in self._farms]
        return [key for key in some if modes.is_stateless(self._farms[key])]

    def states(self, pending: Collection[FarmKey]) -> Counter[str]:
        """How many farms there are in each FarmState."""
        return Counter(self._state(key, pending=key in pending) for key in self.all())

    def _state(self, key: FarmKey, *, pending: bool) -> FarmState:
        if self._conflicts.get(key) is not None:
            return "refused"
        if (problem := self._problems.of.get(key)) is not None and not problem.harmless:
            return "failed"
        return "pending" if pending else "programmed"

    def without_local_backends(self) -> int:
        """How many farms drop connections because their traffic policy is Local, and their backends are elsewhere."""
        local = (farm.spec for farm in self._farms.values() if farm.spec.traffic_policy == "Local")
        candidates = (selection.candidates(spec, self._facts) for spec in local)
        return sum(1 for endpoints in candidates if endpoints.cluster and not endpoints.local)

    def cut_off(self, name: str) -> frozenset[str]:
        """The addresses of a farm's backends whose connections end."""
        farm = self._farms.get(self._keys[name]) if name in self._keys else None
        return selection.cut_off(farm.spec) if farm is not None else frozenset()

    # What shall be.

    def view(self, key: FarmKey) -> objects.Farm | None:
        """What nftlb shall have of a farm: nothing where it is gone, loses an address, or failed a short while ago."""
        name = names.nftlb_farm_name(*key)
        self._impossible.discard(key)
        if key in self._frozen:
            return self._engine.present.get(name)
        farm = self._farms.get(key)
        if farm is None:
            self._keys.pop(name, None)
            self._policies.refer(key, None)
            return None
        if (loss := self._conflicts.get(key)) is not None:
            self._lose(key, *loss)
            return None
        if (said := self._rejected.get(key)) is not None:
            return self._stays(key, "Refused", f"what it needs beside nftlb is refused: {said}; it stays as it was")
        if self._left_until.get(key, 0) > time.monotonic():
            return None
        if lacking := self._lacking(farm):
            return self._stays(key, "KernelFeatureMissing", lacking)
        return self._possible(key, farm)

    def _possible(self, key: FarmKey, farm: Farm) -> objects.Farm | None:
        name = names.nftlb_farm_name(*key)
        try:
            before = self._engine.present.get(name)
            seen = view.farm_view(farm, before, self._facts)
            (self._short.add if self._lacks_marks(farm, before, seen) else self._short.discard)(key)
            seen, hindrance = modes.shaped(farm, seen, self._segment.links)
        except ValueError as error:
            return self._stays(key, "Unsupported", str(error))
        except Exception as error:
            # One farm that nobody thought of must not end the service of all others.
            _log.exception("cannot tell what nftlb shall have of a farm", **where(key, farm))
            return self._stays(key, "Unsupported", f"the agent does not know what to make of it: {error!r}")
        self._hindered.pop(key, None)
        if hindrance is not None:
            self.fail(key, *hindrance)
            self._hindered[key] = self._problems.of[key]
        for holder in self._engine.holders(seen):
            if self._cannot_give(self._keys.get(holder)):
                self.fail(key, "AddressInUse", f"{holder} still has an address of it: {_SEE_HOLDER}")
                self.leave(key)
                return None
        return seen

    def _lacks_marks(self, farm: Farm, before: objects.Farm | None, seen: objects.Farm) -> bool:
        had = len(before.backends) if before is not None else 0
        # Looking for it takes time, and few farms are so large.
        if had + len(farm.spec.backends) <= objects.MARK_LAST - objects.MARK_FIRST:
            return False
        return len(seen.backends) < sum(1 for _ in selection.chosen(farm.spec, self._facts))

    def is_short(self, key: FarmKey) -> bool:
        """Whether there are backends without a mark in a farm's view, for others have it until they are gone."""
        return key in self._short

    def _cannot_give(self, key: FarmKey | None) -> bool:
        """Whether a farm stays as it is in nftlb, because nobody can read what it is to become, or make it that."""
        if key in self._frozen:
            return True
        farm = self._farms.get(key) if key is not None else None
        if key is None or farm is None or self._conflicts.get(key) is not None:
            return False
        return key in self._rejected or bool(self._lacking(farm) or modes.refused_by_nftlb(farm))

    def _lose(self, key: FarmKey, winner: FarmKey, listener: Listener) -> None:
        """The operator tells of conflicts, but for those with node ports, which it cannot see."""
        ip, protocol, port = listener
        if ip in self._facts.port_ips.get(self._farms[key].spec.family, ()):
            held = f"{ip} port {port} {protocol}" if port else ip
            self.fail(key, "AddressInUse", f"the farm {'/'.join(winner)} has {held}, an address of this node")

    def _stays(self, key: FarmKey, reason: FailureReason, message: str) -> objects.Farm | None:
        """A farm that cannot be as it is asked for: nftlb keeps what it has of it, if anything."""
        self._impossible.add(key)
        self.fail(key, reason, message)
        return self._engine.present.get(names.nftlb_farm_name(*key))

    def _lacking(self, farm: Farm) -> str:
        """In words, what the kernel lacks for a farm; else empty."""
        return "; ".join(
            feature.lacking for feature in kernel_features.needed(farm.spec) if not self._kernel_has.get(feature, False)
        )

    def with_holders(self, wanted: Mapping[str, objects.Farm | None]) -> dict[str, objects.Farm | None]:
        """These, and farms that still listen in nftlb where one of them is about to: they come along."""
        whole = dict(wanted)
        todo = [farm for farm in wanted.values() if farm is not None]
        while todo:
            for name in self._engine.holders(todo.pop()) - whole.keys():
                key = self._keys.get(name)
                whole[name] = self.view(key) if key else None
                if (farm := whole[name]) is not None:
                    todo.append(farm)
        return whole

    def contents(self, name: str, farm: objects.Farm | None, present: objects.Farm | None) -> Contents:
        """What a farm shall have in the agent's own table while nftlb has of it what is ``present``."""
        if farm is None:
            return Contents()
        key = self._keys.get(name)
        if key is None or key not in self._farms or key in self._impossible or key in self._frozen:
            # It stays as it is in nftlb, and so it does here.
            return self._table.owned(name) or self._as_it_was(name, farm)
        asked = self._farms[key]
        led = view.own_contents(asked, farm, present or objects.Farm(name), self._facts)
        return led | farm_options.contents(asked.spec, farm)

    def leaving(self, wanted: Mapping[str, objects.Farm | None]) -> dict[str, Contents]:
        """What keeps clients from where nftlb listens and no farm is to: an agent that begins knows no more of it."""
        news = {claim for farm in wanted.values() if farm is not None for claim in farm.claims()}
        present = {name: farm for name, farm in self._engine.present.items() if name in wanted}
        left = {name: set(farm.claims()) - news for name, farm in present.items()}
        return {name: traffic_policy.refused(claims) for name, claims in left.items() if claims}

    def _as_it_was(self, name: str, farm: objects.Farm) -> Contents:
        """What a farm that stays as it is gets from an agent that does not know what it had: rather less than more.

        An agent that was restarted knows the spec of today alone, if it can read that.
        """
        key = self._keys.get(name)
        asked = self._farms.get(key) if key is not None and key not in self._frozen else None
        if asked is None:
            return traffic_policy.closed(farm) if key in self._guarded else traffic_policy.refusal(farm)
        if key in self._rejected:
            return traffic_policy.closed(farm)
        possible = asked.spec.model_copy(update={"helper": "none", "queue": None})
        return view.own_contents(asked, farm, farm, self._facts) | farm_options.contents(possible, farm)

    def guards(self, wanted: Mapping[str, objects.Farm | None]) -> dict[str, Contents]:
        """What keeps clients from farms, by its owner, wherever nftlb listens for them now and is going to."""
        guards = {}
        for name, farm in wanted.items():
            key = self._keys.get(name)
            present = self._engine.present.get(name)
            contents = self._policies.guards(key, farm, present) if key is not None else Contents()
            guards[policies.guards_owner(name)] = contents
        return guards

    def pod_vips(self, key: FarmKey) -> frozenset[modes.PodVip]:
        """The addresses that pods of this node are to have for a farm."""
        farm = self._farms.get(key)
        loses = self._conflicts.get(key) is not None
        return frozenset() if farm is None or loses else modes.pod_vips(farm, self._segment.links)

    # What has come of it.

    def fail(self, key: FarmKey, reason: FailureReason, message: str) -> None:
        """A farm is not as it is asked for."""
        if (farm := self._farms.get(key)) is not None:
            self._problems.tell(key, Problem(reason, message, farm.metadata.generation), farm)

    def leave(self, key: FarmKey) -> None:
        """A farm is left alone for RETRY_S, unless it changes."""
        self._left_until[key] = time.monotonic() + RETRY_S

    def to_retry(self, now: float) -> list[FarmKey]:
        """Those that were left alone for long enough."""
        retry = [key for key, until in self._left_until.items() if until <= now]
        for key in retry:
            del self._left_until[key]
            self._rejected.pop(key, None)
        return retry

    def reject(self, refused: Mapping[str, str], asked: Mapping[str, Farm]) -> None:
        """The kernel does not take the contents of these, by their names in nftlb, and says so.

        ``asked`` are the farms that they were made from: one that has changed meanwhile is looked at anew.
        """
        for name, said in refused.items():
            key = self._keys.get(name)
            if key is not None and self._farms.get(key) is asked.get(name):
                self._rejected[key] = said
                self.view(key)
                self.leave(key)

    def asked(self, names_: Iterable[str]) -> dict[str, Farm]:
        """The farms of these names in nftlb, as far as there are any."""
        keys = {name: key for name in names_ if (key := self._keys.get(name)) is not None}
        return {name: self._farms[key] for name, key in keys.items() if key in self._farms}

    def succeed(self, key: FarmKey) -> Farm | None:
        """nftlb and the kernel have what a farm's view says; the farm, where that is what it asks for."""
        if key in self._frozen or key in self._impossible or key not in self._farms:
            return None
        return self._farms[key]

    def remark(self, key: FarmKey) -> bool:
        """Say what there is to be said of a farm that is programmed; whether it is programmed as it is asked for."""
        farm = self._farms[key]
        if key in self._hindered:
            self._problems.of[key] = self._hindered[key]
            return False
        self._problems.changed(key)
        if trouble := self._policies.trouble(key):
            self.fail(key, *trouble)
            return False
        if remark := selection.remarks(farm.spec):
            self._problems.of[key] = Problem("NoEffect", remark, farm.metadata.generation)
        return True


def _generation(farm: Farm) -> tuple[str, int]:
    return farm.metadata.uid, farm.metadata.generation
