"""Plan the steps from what nftlb has to what it should have, in an order without a gap. No I/O.

The order: first free addresses that another farm is to get; then add and change, each farm in one transaction, which
also puts its removed backends down; then remove, in any order. There are steps only for differences: what is as it
should be is not touched.

A backend whose mark changes, or goes to another backend, is removed first and then made anew: nft refuses two backends
with one mark. And before the persistence changes its sessions are removed, which the new one could not read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from kube_nftlb.nftlb import objects
from kube_nftlb.nftlb.requests import PutFarm, RemoveAddress, RemoveBackends, RemoveFarm, RemoveSession, Step, after


def plan_steps(present: Mapping[str, objects.Farm], wanted: Mapping[str, objects.Farm | None]) -> list[Step]:
    """Return the steps for the farms named in ``wanted``; None removes a farm."""
    news = {
        port
        for name, farm in wanted.items()
        if farm is not None
        for address in _added(present.get(name), farm)
        for port in address.bound_ports()
    }
    first: list[Step] = []
    middle: list[Step] = []
    last: list[Step] = []
    for name, farm in wanted.items():
        before = present.get(name)
        if before is None and farm is None:
            continue
        if farm is None:
            assert before is not None  # noqa: S101 - both being None was handled above
            needed = _clash(news, list(before.bound_ports()))
            (first if needed else last).append(RemoveFarm(name))
            continue
        if before is not None and _must_be_new(before, farm):
            first.append(RemoveFarm(name))
            before = None
        if before is None:
            middle.append(PutFarm(farm))
            continue
        for step in _clearance(before, farm):
            middle.append(step)
            before = after(before, step)
            assert before is not None  # noqa: S101 - only parts of it were removed
        middle.extend(PutFarm(patch) for patch in _patches(before, farm))
        for address in _dropped(before, farm):
            (first if _clash(news, list(address.bound_ports())) else last).append(RemoveAddress(name, address.name))
        last.extend(
            RemoveSession(name, client)
            for client, backend in before.sessions.items()
            # With a backend nftlb removes its sessions.
            if client not in farm.sessions and (backend in farm.backends or backend not in before.backends)
        )
        gone = [backend for backend in before.backends if backend not in farm.backends]
        last.extend(_backends_removal(name, gone))
    return first + middle + last


def _clearance(before: objects.Farm, farm: objects.Farm) -> Iterator[Step]:
    """Yield the steps that must come before the farm can be merged."""
    if before.options.get("persistence") != farm.options.get("persistence"):
        yield from (RemoveSession(farm.name, client) for client in before.sessions)
    owners = {backend.mark: name for name, backend in farm.backends.items()}
    moved = [
        backend
        for name, backend in before.backends.items()
        if (name in farm.backends and farm.backends[name].mark != backend.mark)
        or owners.get(backend.mark, name) != name
    ]
    if up := {each.name: objects.Backend(each.name, each.mark, "down", {}) for each in moved if each.state != "down"}:
        yield PutFarm(objects.Farm(farm.name, {}, {}, up))
    yield from _backends_removal(farm.name, [backend.name for backend in moved])


def _backends_removal(farm: str, backends: Sequence[str]) -> list[Step]:
    return [RemoveBackends(farm, tuple(backends))] if backends else []


def _must_be_new(before: objects.Farm, farm: objects.Farm) -> bool:
    """Return True if nftlb cannot get from one to the other.

    It translates for one protocol per farm, the last that it was sent, and its rules for the mode dsr have nothing in
    common with the others.
    """
    if before.ingress != farm.ingress:
        return True
    return bool(_kinds(before)) and not _kinds(before) <= _kinds(farm)


def _kinds(farm: objects.Farm) -> set[tuple[str, str]]:
    return {(address.protocol, address.family) for address in farm.addresses.values()}


def _patches(before: objects.Farm, farm: objects.Farm) -> list[objects.Farm]:
    """Return the parts of a farm to send: options, addresses, backends and sessions that differ.

    New addresses are sent separately if options change too: nftlb would restart the farm with them, and then leave
    elements of the old addresses behind (docs/nftlb-defects.md).
    """
    options = {key: value for key, value in farm.options.items() if before.options.get(key) != value}
    addresses = {address.name: address for address in _added(before, farm)}
    backends = {
        name: backend for name, backend in farm.backends.items() if not _same(before.backends.get(name), backend)
    }
    for name, backend in before.backends.items():
        if name not in farm.backends and backend.state != "down":
            backends[name] = objects.Backend(name, backend.mark, "down", {})
    sessions = {client: name for client, name in farm.sessions.items() if before.sessions.get(client) != name}
    if options and addresses:
        return [
            objects.Farm(farm.name, options, {}, backends, sessions),
            objects.Farm(farm.name, {}, addresses, {}),
        ]
    if options or addresses or backends or sessions:
        return [objects.Farm(farm.name, options, addresses, backends, sessions)]
    return []


def _same(before: objects.Backend | None, backend: objects.Backend) -> bool:
    return (
        before is not None
        and (before.mark, before.state) == (backend.mark, backend.state)
        and all(before.options.get(key) == value for key, value in backend.options.items())
    )


def _added(before: objects.Farm | None, farm: objects.Farm) -> Iterator[objects.Address]:
    return (address for name, address in farm.addresses.items() if before is None or name not in before.addresses)


def _dropped(before: objects.Farm, farm: objects.Farm) -> Iterator[objects.Address]:
    return (address for name, address in before.addresses.items() if name not in farm.addresses)


def _clash(some: Collection[objects.BoundPort], others: Collection[objects.BoundPort]) -> bool:
    """Return True if two farms cannot have these at the same time."""
    if not set(some).isdisjoint(others):
        return True
    whole, whole_others = ({port.ip for port in ports if port.protocol == "all"} for ports in (some, others))
    return any(port.ip in whole for port in others) or any(port.ip in whole_others for port in some)
