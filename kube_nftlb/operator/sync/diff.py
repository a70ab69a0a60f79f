"""From what is wanted of a Service's farms and what there is to the writes that are needed."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.kube import timestamps
from kube_nftlb.operator.cache.records import FarmRecord
from kube_nftlb.operator.farms.builder import Built, PortKey, Wanted, serves
from kube_nftlb.operator.farms.naming import Contender, farm_name
from kube_nftlb.operator.model.rejections import Rejection

ApplyReason = Literal["Created", "SpecChanged", "OwnerChanged"]
DeleteReason = Literal["ServiceGone", "ServiceNotServed", "PortGone"]


class Apply(NamedTuple):
    """A farm to write; ``uid`` is that of the farm that is there, "" where none is."""

    key: FarmKey
    wanted: Wanted
    body: dict[str, Any]
    uid: str
    reason: ApplyReason
    foreign_owner: bool = False
    """Whether the farm that is there calls another object its controller: an earlier Service, or a forged one."""


class Delete(NamedTuple):
    """A farm to delete."""

    farm: FarmRecord
    reason: DeleteReason


class Writes(NamedTuple):
    """The writes for one Service: deletions come last, for an address may go from one farm to another.

    The older farm has it until it is deleted; nodes then give it at once to the new one, which they must know by then.
    """

    applies: tuple[Apply, ...]
    deletes: tuple[Delete, ...]
    problems: tuple[Rejection, ...]


def diff(
    service: Service | None,
    built: Built,
    existing: Sequence[FarmRecord],
    *,
    contenders: Callable[[PortKey], Iterable[Contender]],
    farm_at: Callable[[FarmKey], FarmRecord | None],
    made_at: datetime | None = None,
) -> Writes:
    """What to write so that a Service (None: there is none) has the farms that were built from it, and no others.

    ``existing`` are the farms made from that Service so far; ``farm_at`` finds any farm.
    ``made_at`` is when the oldest change that this follows was made in the cluster; farms that change are told it.
    """
    if service is None:
        return Writes((), _deletes(existing, "ServiceGone", kept=set()), ())
    applies: list[Apply] = []
    problems = list(built.problems)
    kept: set[FarmKey] = set()
    owned: dict[PortKey | None, list[str]] = {}
    for farm in existing:
        owned.setdefault(farm.port, []).append(farm.key.name)
    for wanted in built.farms:
        port = wanted.port

        def taken(name: str, port: PortKey = port) -> bool:
            farm = farm_at(FarmKey(port.namespace, name))
            if farm is None or farm.port == port:
                return False
            # One that this very Service controls has lost its labels by hand: it gets them back.
            return farm.port is not None or farm.owner_uid != service.metadata.uid

        if (name := farm_name(port, owned.get(port, []), contenders(port), taken)) is None:
            sentence = (
                f"port {port.port or 'default'} has no farm: others are named {port.plain_name} and as its substitute"
            )
            problems.append(Rejection("FarmNameTaken", sentence))
            continue
        key = FarmKey(port.namespace, name)
        kept.add(key)
        there = farm_at(key)
        if (reason := _apply_reason(service, wanted, there)) is not None:
            uid, owner_uid = (there.uid, there.owner_uid) if there is not None else ("", "")
            foreign = owner_uid not in ("", service.metadata.uid)
            applies.append(Apply(key, wanted, _body(service, key, wanted, uid, made_at), uid, reason, foreign))
    # Where one farm becomes two, the new one gets its addresses at the moment at which the other leaves them.
    applies.sort(key=lambda apply: apply.reason != "Created")
    gone: DeleteReason = "PortGone" if serves(service) else "ServiceNotServed"
    return Writes(tuple(applies), _deletes(existing, gone, kept), tuple(problems))


def _apply_reason(service: Service, wanted: Wanted, there: FarmRecord | None) -> ApplyReason | None:
    if there is None:
        return "Created"
    if there.terminating:
        return None
    if there.digest != wanted.digest:
        return "SpecChanged"
    return "OwnerChanged" if there.owner_uid != service.metadata.uid else None


def _deletes(existing: Iterable[FarmRecord], reason: DeleteReason, kept: set[FarmKey]) -> tuple[Delete, ...]:
    return tuple(Delete(farm, reason) for farm in existing if farm.key not in kept and not farm.terminating)


def _body(service: Service, key: FarmKey, wanted: Wanted, uid: str, made_at: datetime | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": key.name,
        "namespace": key.namespace,
        "labels": {
            names.LABEL_MANAGED_BY: names.MANAGED_BY_OPERATOR,
            names.LABEL_SERVICE: wanted.port.service,
            names.LABEL_SERVICE_PORT: wanted.port.port,
            names.LABEL_FAMILY: wanted.port.family,
            names.LABEL_TRAFFIC: "external" if wanted.port.external else "all",
        },
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "name": service.metadata.name,
                "uid": service.metadata.uid,
                "controller": True,
            }
        ],
    }
    if made_at is not None:
        metadata["annotations"] = {names.ANNOTATION_CHANGED_AT: timestamps.micros(made_at)}
    if uid:
        # The API server refuses the write should the farm have become another one meanwhile.
        metadata["uid"] = uid
    return {"metadata": metadata, "spec": wanted.spec}
