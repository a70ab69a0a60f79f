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
    """A farm to write, of a route if ``port`` is None; ``digest`` is that of its spec."""

    key: FarmKey
    body: dict[str, Any]
    digest: bytes
    reason: ApplyReason
    foreign_owner: bool
    """True if the existing farm has another controller: an earlier Service, or a forged one."""
    port: PortKey | None = None


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
        uid, owner_uid = (existing_farm.uid, existing_farm.owner_uid) if existing_farm is not None else ("", "")
        is_owned = owner_uid == service.metadata.uid
        if (reason := apply_reason(existing_farm, wanted.digest, is_owned=is_owned)) is not None:
            foreign = owner_uid != "" and not is_owned
            applies.append(Apply(key, _body(service, key, wanted, uid), wanted.digest, reason, foreign, port))
    # If one farm becomes two, the new one gets its addresses when the other gives them up.
    applies.sort(key=lambda apply: apply.reason != "Created")
    gone: DeleteReason = "PortGone" if serves(service) else "ServiceNotServed"
    return Writes(tuple(applies), _deletes(existing, gone, built_keys), tuple(problems))


def apply_reason(existing: FarmRecord | None, digest: bytes, *, is_owned: bool) -> ApplyReason | None:
    """Return why a farm has to be written; None if it is as it should be, or about to go."""
    if existing is None:
        return "Created"
    if existing.terminating:
        return None
    if existing.digest != digest:
        return "SpecChanged"
    return "OwnerChanged" if not is_owned else None


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
