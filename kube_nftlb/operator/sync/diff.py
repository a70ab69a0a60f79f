"""Compare the farms that a Service needs with those that exist. No I/O."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from kube_nftlb import names
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.operator.cache.farm_record import FarmRecord
from kube_nftlb.operator.farms.builder import Built, Wanted
from kube_nftlb.operator.farms.naming import Contender, farm_name
from kube_nftlb.operator.farms.ports import PortKey, serves
from kube_nftlb.operator.model.rejections import Rejection

ApplyReason = Literal["Created", "SpecChanged", "OwnerChanged"]
DeleteReason = Literal["ServiceGone", "ServiceNotServed", "PortGone", "RouteGone"]


class Apply(NamedTuple):
    """A farm to write; ``uid`` is that of the existing farm, ``""`` without one."""

    key: FarmKey
    wanted: Wanted
    body: dict[str, Any]
    uid: str
    reason: ApplyReason
    foreign_owner: bool = False
    """True if the existing farm has another controller: an earlier Service, or a forged one."""


class Delete(NamedTuple):
    """A farm to delete."""

    farm: FarmRecord
    reason: DeleteReason


class Writes(NamedTuple):
    """The writes for one Service. Deletions come last, since an address may move from one farm to another.

    The old farm owns it until it is deleted; nodes then give it to the new farm, which they must know by then.
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
) -> Writes:
    """Return the writes after which a Service (None: deleted) has exactly the farms that were built from it.

    ``existing`` are the farms of that Service; ``farm_at`` finds any farm.
    """
    if service is None:
        return Writes((), _deletes(existing, "ServiceGone", built=set()), ())
    applies: list[Apply] = []
    problems = list(built.problems)
    built_keys: set[FarmKey] = set()
    owned: dict[PortKey | None, list[str]] = {}
    for farm in existing:
        owned.setdefault(farm.port, []).append(farm.key.name)
    for wanted in built.farms:
        port = wanted.port

        def taken(name: str, port: PortKey = port) -> bool:
            farm = farm_at(FarmKey(port.namespace, name))
            if farm is None or farm.port == port:
                return False
            # A farm of this very Service whose labels were removed by hand gets them back.
            return farm.port is not None or farm.owner_uid != service.metadata.uid

        if (name := farm_name(port, owned.get(port, []), contenders(port), taken)) is None:
            message = f"port {port.port or 'default'} has no farm: {port.plain_name} and its substitute are taken"
            problems.append(Rejection("FarmNameTaken", message))
            continue
        key = FarmKey(port.namespace, name)
        built_keys.add(key)
        existing_farm = farm_at(key)
        if (reason := _apply_reason(service, wanted, existing_farm)) is not None:
            uid, owner_uid = (existing_farm.uid, existing_farm.owner_uid) if existing_farm is not None else ("", "")
            foreign = owner_uid not in ("", service.metadata.uid)
            applies.append(Apply(key, wanted, _body(service, key, wanted, uid), uid, reason, foreign))
    # If one farm becomes two, the new one gets its addresses when the other gives them up.
    applies.sort(key=lambda apply: apply.reason != "Created")
    gone: DeleteReason = "PortGone" if serves(service) else "ServiceNotServed"
    return Writes(tuple(applies), _deletes(existing, gone, built_keys), tuple(problems))


def _apply_reason(service: Service, wanted: Wanted, existing: FarmRecord | None) -> ApplyReason | None:
    if existing is None:
        return "Created"
    if existing.terminating:
        return None
    if existing.digest != wanted.digest:
        return "SpecChanged"
    return "OwnerChanged" if existing.owner_uid != service.metadata.uid else None


def _deletes(existing: Iterable[FarmRecord], reason: DeleteReason, built: set[FarmKey]) -> tuple[Delete, ...]:
    return tuple(Delete(farm, reason) for farm in existing if farm.key not in built and not farm.terminating)


def _body(service: Service, key: FarmKey, wanted: Wanted, uid: str) -> dict[str, Any]:
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
    if uid:
        # The API server rejects the write if the farm was replaced meanwhile.
        metadata["uid"] = uid
    return {"metadata": metadata, "spec": wanted.spec}
