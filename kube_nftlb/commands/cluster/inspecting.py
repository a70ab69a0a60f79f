"""``kubectl nftlb status`` and ``get``: ask the API server, and print."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from pydantic import ValidationError

from kube_nftlb import errors
from kube_nftlb.api.base import first_error
from kube_nftlb.api.kubernetes.service import Service
from kube_nftlb.commands.cluster import (
    connections,
    findings,
    service_findings,
    service_view,
    terminal,
)
from kube_nftlb.commands.cluster import status as pages
from kube_nftlb.commands.cluster.finding import Finding
from kube_nftlb.commands.cluster.name_arguments import NameArgument, parse
from kube_nftlb.commands.cluster.options import Format, WideFormat
from kube_nftlb.commands.cluster.overview import overview, warnings
from kube_nftlb.commands.cluster.queries import (
    Target,
    check_namespace,
    connected,
    get_if_present,
    get_or_none,
    list_if_allowed,
    list_nodes,
    namespace_of,
    slices_for,
)
from kube_nftlb.commands.cluster.service_tree import ServiceView, tree
from kube_nftlb.commands.view import ClusterView, is_of_service
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.resources import (
    FARMS,
    NFTLB_NODES,
    POLICIES,
    SERVICES,
    JsonObject,
)

_AGAIN_S = 1.0
_LOOK_MIN_S = 5.0
"""Maximum time in seconds of a look, however little is left of the time to wait."""


class StatusOptions(NamedTuple):
    """The options of ``status``."""

    output: WideFormat = WideFormat.TEXT
    wait_s: float = 0
    """How long to wait until nothing is wrong."""
    service: tuple[str, str] | None = None
    """Namespace and name of the Service whose farms count, and to which connections are opened; None for all farms."""
    pods: int = 1
    """Minimum number of pods that must answer these."""


class _Looked(NamedTuple):
    view: ClusterView
    findings: Sequence[Finding]
    connections: Sequence[str] = ()


async def status(target: Target, options: StatusOptions) -> bool:
    """Print the status, once nothing is wrong or the time is up. Return True if something is wrong.

    Raises KubeUnreachableError if the API server cannot be reached when the time is up, KubeError if it refuses, or
    has an error then, and UsageError if the namespace or Service does not exist, or has no address to connect to.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + options.wait_s
    async with terminal.progress("asking the API server"), connected(target) as kube:
        while True:
            until = max(deadline, clock() + _LOOK_MIN_S) if options.wait_s else None
            try:
                looked = await _look(kube, target, options, until)
                if not looked.findings or clock() >= deadline:
                    break
            except (errors.KubeError, errors.KubeUnreachableError) as error:
                temporary = not isinstance(error, errors.KubeError) or error.is_temporary
                if not temporary or clock() >= deadline:
                    raise
            await asyncio.sleep(_AGAIN_S)
    if target.namespace and not looked.view.farms:
        terminal.note(pages.all_well((), target.namespace))
    now = kube.servers.now
    if options.output in (WideFormat.JSON, WideFormat.YAML):
        document = pages.status_json(looked.view, looked.findings, now)
        terminal.show_data({**document, "connections": list(looked.connections)}, options.output)
    else:
        wide = options.output is WideFormat.WIDE
        lines = pages.status_text(looked.view, looked.findings, now, wide=wide)
        terminal.show(*lines, *(terminal.plain(each) for each in looked.connections))
    return bool(looked.findings)


async def _look(kube: Kube, target: Target, options: StatusOptions, until: float | None) -> _Looked:
    """Look at everything, and open connections if nothing is wrong.

    Raises UsageError if there is no such Service, KubeUnreachableError if the API server has not told everything by the
    time ``until`` of the loop.
    """
    try:
        async with asyncio.timeout_at(until):
            looked, service = await _read(kube, target, options)
    except TimeoutError:
        raise errors.KubeUnreachableError("it has not answered everything in the time to wait") from None
    if service is None or looked.findings:
        return looked
    # One after another: a node that drops packets drops them all.
    tried = [await connections.connect(each) for each in connections.targets(service)]
    found, summary = connections.findings(service, tried, options.pods), connections.summary(tried)
    return _Looked(looked.view, list(found), list(summary))


async def _read(kube: Kube, target: Target, options: StatusOptions) -> tuple[_Looked, JsonObject | None]:
    """Return the state of the cluster, and the Service that is meant, if one is."""
    if options.service is None:
        view = await overview(kube, target, target.namespace)
        if target.namespace and not view.farms:
            await check_namespace(kube, target.namespace)
        return _Looked(view, findings.find(view, kube.servers.now)), None
    namespace, name = options.service
    view = await overview(kube, target, namespace)
    unserved = [raw for raw in view.unserved if raw["metadata"]["name"] == name]
    view = replace(view, farms=[raw for raw in view.farms if is_of_service(raw, name)], unserved=unserved)
    found = findings.find(view, kube.servers.now)
    service = await _service(kube, namespace, name)
    if not view.farms and not any(each.reason == "NoFarm" for each in found):
        found.append(service_findings.no_farm(service, view.events))
    return _Looked(view, found), service


async def get(target: Target, name: str, output: Format) -> None:
    """Print a Service as a tree. Raises UsageError if there is none of that name."""
    what = parse(name, target.namespace, namespace_of(target))
    if what.kind == "farm":
        raise errors.UsageError(f"get shows Services; of a farm {_see_farm(what.namespace, what.name)}{what.hint}")
    async with terminal.progress("asking the API server"), connected(target) as kube:
        service = await _view(kube, what)
    if output is not Format.TEXT:
        terminal.show_data(asdict(service), output)
    else:
        terminal.show(tree(service))


async def _service(kube: Kube, namespace: str, name: str, hint: str = "") -> JsonObject:
    if (service := await get_if_present(kube, SERVICES, name, namespace)) is not None:
        return service
    farm = await get_or_none(kube, FARMS, name, namespace)
    hint = f"; there is a farm: {_see_farm(namespace, name)}" if farm is not None else hint
    raise errors.UsageError(f"there is no Service {name!r} in the namespace {namespace}{hint}")


def _see_farm(namespace: str, name: str) -> str:
    of_it = f"{name} -n {namespace}"
    return f"see `kubectl nftlb why farm/{of_it}` and `kubectl get nftlbfarm {of_it} -o yaml`"


async def _view(kube: Kube, what: NameArgument) -> ServiceView:
    namespace, name = what.namespace, what.name
    raw = await _service(kube, namespace, name, what.hint)
    farms, reports, policies = await asyncio.gather(
        kube.list(FARMS, namespace), kube.list(NFTLB_NODES), kube.list(POLICIES, namespace)
    )
    nodes = await list_nodes(kube)
    try:
        service = Service.model_validate(raw)
    except ValidationError as error:
        raise errors.UsageError(f"cannot read the Service: {first_error(error)}") from error
    view = ClusterView(farms.items, nodes, reports.items, policies=policies.items)
    conflicting = view.may_conflict(service_view.farms_about(service, view))

    def matters(farm: JsonObject) -> JsonObject | None:
        foreign = farm["metadata"]["namespace"] != namespace
        return farm if foreign and (conflicting(farm) or service_view.concerns(farm, service)) else None

    # Farms of other namespaces, as far as the user may see them.
    others = await list_if_allowed(kube, FARMS, transform=matters) or ()
    referring = [farm for farm in others if service_view.concerns(farm, service)]
    view = replace(view, farms=[*view.farms, *referring], rivals=[farm for farm in others if farm not in referring])
    about = service_view.farms_about(service, view)
    view = replace(view, slices=await slices_for(kube, about))
    why_none = "" if about else service_findings.note(raw, await warnings(kube, namespace, name))
    return service_view.view(service, view, why_none)
