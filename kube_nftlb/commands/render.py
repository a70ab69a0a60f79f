"""``kube-nftlb render``: what manifests result in, without a cluster. Pure: no I/O.

The farms come from the operator's own functions, and everything after them from the agent's.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import yaml
from pydantic import ValidationError

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftlb.translate import translate
from kube_nftlb.agent.node.info import NodeFacts
from kube_nftlb.api.base import first_error
from kube_nftlb.api.conflicts import FarmKey
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.commands.manifests import Manifests
from kube_nftlb.commands.profiles import ENGINES, MODES, ChartProfile
from kube_nftlb.commands.view import ClusterView
from kube_nftlb.kube.resources import ENDPOINT_SLICES, FARMS, NODES, PODS, POLICIES, JsonObject, Resource
from kube_nftlb.nftlb import objects
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import parse_farm
from kube_nftlb.operator.cache.ingest import Ingest
from kube_nftlb.operator.farms.builder import Built, Profile, build
from kube_nftlb.operator.farms.ports import serves
from kube_nftlb.operator.model.pods import parse_pod, pod_key, slim
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.operator.status.farm_status import accept
from kube_nftlb.operator.sync.diff import diff
from kube_nftlb.settings import DefaultEngine

_UNKNOWN: Final = ("uid", "resourceVersion", "generation", "managedFields")
"""Metadata that only the API server can set."""


class Rendered(NamedTuple):
    """The result of rendering manifests."""

    view: ClusterView
    """The objects; its farms are all NftlbFarms, with invalid ones, which the operator would report in their status."""
    accepted: tuple[Farm, ...]
    """The farms that a node would program, with the backends that they refer to."""
    problems: tuple[str, ...]
    """Rejected objects and options, as sentences that name the object."""
    notes: tuple[str, ...]
    node: str = ""
    """The node to render for; by default, one without backends."""

    @property
    def facts(self) -> NodeFacts:
        """What the agent of the node knows of it."""
        return self.view.facts_of(self.node)


def render(
    manifests: Manifests,
    node: str | None = None,
    profile: ChartProfile = "nftlb",
    engine: DefaultEngine | None = None,
) -> Rendered:
    """Return the farms of the Services and those in the manifests, for ``node``, which must be among them.

    ``profile`` and ``engine`` are values of the chart; None: the profile's. Raises UsageError if there is no such Node.
    """
    names = sorted(raw["metadata"]["name"] for resource, raw in manifests.objects if resource == NODES)
    if node and node not in names:
        known = f" (found {', '.join(names)})" if names else ""
        raise errors.UsageError(
            f"no Node {node!r} in the manifests{known}; add the output of kubectl get node {node} -o yaml"
        )
    defaults = Profile(mode=MODES[profile], engine=engine or ENGINES[profile])
    return _farms(manifests, defaults)._replace(node=node or "")


def _farms(manifests: Manifests, profile: Profile) -> Rendered:
    cache = Cache()
    ingest = Ingest(cache)
    raws: dict[FarmKey, JsonObject] = {}
    problems: list[str] = []
    notes = list(manifests.notes)
    nodes: list[JsonObject] = []
    for resource, raw in manifests.objects:
        if resource == NODES:
            problems.extend(_take_node(ingest, raw, nodes))
        elif resource != POLICIES:
            problems.extend(_take(ingest, resource, raw, raws))
    for key, service in sorted(cache.services.items()):
        if refused := cache.budgets.refusal_of_service(key):
            built = Built((), (Rejection("TooManyFarms", refused),))
        else:
            options, why = partial(cache.options_of_pod, key.namespace), partial(cache.reserved.why, service=key)
            built = build(service, cache.annotated_pods(key), options, profile, why)
        todo = diff(
            service,
            built,
            cache.farms_of(key),
            contenders=cache.contenders,
            farm_at=cache.farms.get,
        )
        problems.extend(f"Service {'/'.join(key)}: {problem.reason}: {problem.message}" for problem in todo.problems)
        for delete in todo.deletes:
            notes.append(f"NftlbFarm {'/'.join(delete.farm.key)} would be deleted: {delete.reason}")
            ingest.forget(FARMS, delete.farm.key, delete.farm.resource_version)
            raws.pop(delete.farm.key, None)
        for apply in todo.applies:
            raw = _written(apply.body, raws.get(apply.key))
            raws[apply.key] = raw
            ingest.put(FARMS, raw)
        if serves(service) and not cache.slices.index.of(key):
            notes.append(f"Service {'/'.join(key)} has no EndpointSlice or workload in the manifests: no backends")
    view = ClusterView(
        [raw for _, raw in sorted(raws.items())],
        nodes,
        slices=_of_kind(manifests, ENDPOINT_SLICES),
        policies=_of_kind(manifests, POLICIES),
    )
    return _judged(cache, view, problems, notes)


def _of_kind(manifests: Manifests, kind: Resource) -> list[JsonObject]:
    return [raw for resource, raw in manifests.objects if resource == kind]


def _take(ingest: Ingest, resource: Resource, raw: JsonObject, farms: dict[FarmKey, JsonObject]) -> Iterator[str]:
    """Take in an object with a namespace, farms in ``farms`` too; yield what of it is refused."""
    where = FarmKey.of(raw)
    try:
        if resource == PODS:
            yield from _take_pod(ingest, raw)
        else:
            ingest.put(resource, raw)
    except (ValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
        yield f"{resource.kind} {'/'.join(where)}: the API server would reject it: {_reason(error)}"
        return
    if resource == FARMS:
        farms[where] = raw


def _take_node(ingest: Ingest, raw: JsonObject, nodes: list[JsonObject]) -> Iterator[str]:
    """Take in a Node, in ``nodes`` too, or yield why it is refused."""
    try:
        CoreNode.model_validate(raw)
    except ValidationError as error:
        yield f"Node {raw['metadata']['name']}: the API server would reject it: {first_error(error)}"
        return
    ingest.put(NODES, raw)
    nodes.append(raw)


def _take_pod(ingest: Ingest, raw: JsonObject) -> list[str]:
    """Take in what a Pod's annotations ask; what of it is refused."""
    if (slimmed := slim(raw)) is None:
        return []
    key, pod = pod_key(raw), parse_pod(slimmed)
    ingest.put(PODS, slimmed)
    return [f"Pod {'/'.join(key)}: {problem.reason}: {problem.message}" for problem in pod.problems]


def farms_yaml(rendered: Rendered) -> str:
    """Return the farms as manifests."""
    return yaml.safe_dump_all([_plain(raw) for raw in rendered.view.farms], sort_keys=False, width=120)


def nftlb_document(rendered: Rendered) -> JsonObject:
    """Return what an agent would send to an empty nftlb, for the farms that nftlb serves."""
    farms = (farm for farm in rendered.accepted if farm.spec.engine == "nftlb")
    return objects.document(translate(rendered.view.on_node(farm, rendered.node), None) for farm in farms)


def _judged(cache: Cache, view: ClusterView, problems: list[str], notes: list[str]) -> Rendered:
    accepted = []
    for key, raw in view.raw_farms.items():
        record, _ = parse_farm(raw, None)
        verdict = accept(record, cache.conflicts.get(record.key))
        farm = view.farm(key)
        if verdict.reason != "Valid":
            problems.append(f"NftlbFarm {'/'.join(key)}: {verdict.reason}: {verdict.message}")
        elif isinstance(farm, str):
            problems.append(f"NftlbFarm {'/'.join(key)}: Invalid: {farm}")
        if verdict.status == "True" and isinstance(farm, Farm):
            accepted.append(farm)
    return Rendered(view, tuple(accepted), tuple(problems), tuple(dict.fromkeys(notes)))


def _written(body: JsonObject, old: JsonObject | None) -> JsonObject:
    """Return a farm as it is after the operator wrote it."""
    before: JsonObject = old["metadata"] if old is not None else {"generation": 1, "resourceVersion": "0"}
    metadata = {**before, **body["metadata"], "resourceVersion": str(int(before["resourceVersion"]) + 1)}
    metadata.setdefault("uid", f"{FARMS.kind}/{metadata['namespace']}/{metadata['name']}")
    return {"apiVersion": FARMS.api_version, "kind": FARMS.kind, "metadata": metadata, "spec": body["spec"]}


def _plain(raw: JsonObject) -> JsonObject:
    metadata = {key: value for key, value in raw["metadata"].items() if key not in _UNKNOWN}
    if owners := metadata.get("ownerReferences"):
        metadata["ownerReferences"] = [{k: v for k, v in owner.items() if k != "uid"} for owner in owners]
    return {"apiVersion": FARMS.api_version, "kind": FARMS.kind, "metadata": metadata, "spec": raw.get("spec")}


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return first_error(error)
    if isinstance(error, KeyError):
        return f"it lacks the field {error}"
    return str(error) if isinstance(error, ValueError) else "a field has a value of the wrong type"
