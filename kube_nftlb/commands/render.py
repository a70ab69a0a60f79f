"""``kube-nftlb render``: what manifests result in, without a cluster. No I/O.

The farms come from the operator's own functions, and everything after them from the agent's.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import yaml
from pydantic import ValidationError

from kube_nftlb import errors
from kube_nftlb.agent.engine.nftlb.translate import translate
from kube_nftlb.agent.informers import parse
from kube_nftlb.agent.node.info import NodeFacts, gather
from kube_nftlb.agent.resolve import node_farm
from kube_nftlb.api.base import first_error
from kube_nftlb.api.conflicts import FarmKey, farm_key, lost_listeners
from kube_nftlb.api.farm import Farm
from kube_nftlb.api.kubernetes.node import CoreNode
from kube_nftlb.api.listeners import Listener
from kube_nftlb.commands.manifests import Manifests
from kube_nftlb.endpointslices.backends import resolved_spec
from kube_nftlb.endpointslices.slices import ServiceKey
from kube_nftlb.kube.resources import FARMS, NODES, PODS, POLICIES, JsonObject, Resource
from kube_nftlb.nftlb import objects
from kube_nftlb.operator.cache.cache import Cache
from kube_nftlb.operator.cache.farm_record import parse_farm
from kube_nftlb.operator.cache.ingest import CacheWriter
from kube_nftlb.operator.farms.builder import Profile, build
from kube_nftlb.operator.farms.ports import serves
from kube_nftlb.operator.model.pods import parse_pod, pod_key, slim
from kube_nftlb.operator.status.farm_status import accept
from kube_nftlb.operator.sync.diff import diff
from kube_nftlb.settings import DefaultEngine

_UNKNOWN: Final = ("uid", "resourceVersion", "generation", "managedFields")
"""Metadata that only the API server can set."""


class Rendered(NamedTuple):
    """The result of rendering manifests."""

    farms: tuple[JsonObject, ...]
    """All NftlbFarms, including invalid ones, which the operator would write and report in their status."""
    accepted: tuple[Farm, ...]
    """The farms that a node would program."""
    lost: Mapping[FarmKey, frozenset[Listener]]
    """The listeners of these that other farms have."""
    problems: tuple[str, ...]
    """Rejected objects and options, as sentences that name the object."""
    notes: tuple[str, ...]
    policies: tuple[JsonObject, ...] = ()
    facts: NodeFacts = NodeFacts()
    """The node to render for; by default, one without backends."""


def render(manifests: Manifests, node: str | None = None, engine: DefaultEngine = "nftlb") -> Rendered:
    """Return the farms of the Services and those in the manifests, for ``node``, which must be among them.

    ``engine`` is the operator's default. Raises UsageError if there is no such Node.
    """
    raw_nodes = {raw["metadata"]["name"]: raw for resource, raw in manifests.objects if resource == NODES}
    policies = tuple(raw for resource, raw in manifests.objects if resource == POLICIES)
    facts = _facts(node, raw_nodes) if node else NodeFacts()
    return _farms(manifests, Profile(engine=engine))._replace(policies=policies, facts=facts)


def _facts(name: str, raws: dict[str, JsonObject]) -> NodeFacts:
    if name not in raws:
        known = f" (found {', '.join(sorted(raws))})" if raws else ""
        raise errors.UsageError(
            f"no Node {name!r} in the manifests{known}; add the output of kubectl get node {name} -o yaml"
        )
    return gather(name, CoreNode.model_validate(raws[name]))


def _farms(manifests: Manifests, profile: Profile) -> Rendered:
    cache = Cache()
    writer = CacheWriter(cache)
    raws: dict[FarmKey, JsonObject] = {}
    problems: list[str] = []
    notes = list(manifests.notes)
    for resource, raw in manifests.objects:
        if resource == NODES:
            writer.put(resource, raw)
        elif resource != POLICIES:
            problems.extend(_take(writer, resource, raw, raws))
    for key, service in sorted(cache.services.items()):
        todo = diff(
            service,
            build(
                service,
                cache.annotated_pods(key),
                partial(cache.options_of_pod, key.namespace),
                profile,
                partial(cache.reserved.why, service=key),
            ),
            cache.farms_of(key),
            contenders=cache.contenders,
            farm_at=cache.farms.get,
        )
        problems.extend(f"Service {'/'.join(key)}: {problem.reason}: {problem.message}" for problem in todo.problems)
        for delete in todo.deletes:
            notes.append(f"NftlbFarm {'/'.join(delete.farm.key)} would be deleted: {delete.reason}")
            writer.forget(FARMS, delete.farm.key, delete.farm.resource_version)
            raws.pop(delete.farm.key, None)
        for apply in todo.applies:
            raw = _written(apply.body, raws.get(apply.key))
            raws[apply.key] = raw
            writer.put(FARMS, raw)
        if serves(service) and not cache.slices.of(key):
            notes.append(f"Service {'/'.join(key)} has no EndpointSlice or workload in the manifests: no backends")
    return _judged(cache, raws, problems, notes)


def _take(writer: CacheWriter, resource: Resource, raw: JsonObject, farms: dict[FarmKey, JsonObject]) -> Iterator[str]:
    """Take in an object with a namespace, farms in ``farms`` too; yield what of it is refused."""
    where = FarmKey(raw["metadata"]["namespace"], raw["metadata"]["name"])
    try:
        if resource == PODS:
            yield from _take_pod(writer, raw)
        else:
            writer.put(resource, raw)
    except (ValidationError, KeyError, TypeError, AttributeError, ValueError) as error:
        yield f"{resource.kind} {'/'.join(where)}: the API server would reject it: {_reason(error)}"
        return
    if resource == FARMS:
        farms[where] = raw


def _take_pod(writer: CacheWriter, raw: JsonObject) -> list[str]:
    """Take in what a Pod's annotations ask; what of it is refused."""
    if (kept := slim(raw)) is None:
        return []
    key, pod = pod_key(raw), parse_pod(kept)
    writer.put(PODS, kept)
    return [f"Pod {'/'.join(key)}: {problem.reason}: {problem.message}" for problem in pod.problems]


def farms_yaml(rendered: Rendered) -> str:
    """Return the farms as manifests."""
    return yaml.safe_dump_all([_plain(raw) for raw in rendered.farms], sort_keys=False, width=120)


def nftlb_document(rendered: Rendered) -> JsonObject:
    """Return what an agent would send to an empty nftlb, for the farms that nftlb serves."""
    farms = (farm for farm in rendered.accepted if farm.spec.engine == "nftlb")
    lost = rendered.lost
    return objects.document(
        translate(node_farm(farm, rendered.facts, None, lost.get(farm_key(farm), ())), None) for farm in farms
    )


def _judged(cache: Cache, raws: dict[FarmKey, JsonObject], problems: list[str], notes: list[str]) -> Rendered:
    accepted = []
    lost: dict[FarmKey, frozenset[Listener]] = {}
    for where, raw in sorted(raws.items()):
        record, _ = parse_farm(raw, None)
        loss = cache.conflicts.get(record.key)
        verdict = accept(record, loss)
        farm = parse(raw)
        if verdict.reason != "Valid":
            problems.append(f"NftlbFarm {'/'.join(where)}: {verdict.reason}: {verdict.message}")
        elif not isinstance(farm, Farm):
            problems.append(f"NftlbFarm {'/'.join(where)}: {farm.reason}: {farm.message}")
        if verdict.status == "True" and isinstance(farm, Farm):
            accepted.append(_with_backends(farm, cache))
            lost[where] = lost_listeners(loss)
    return Rendered(
        tuple(raw for _, raw in sorted(raws.items())),
        tuple(accepted),
        lost,
        tuple(problems),
        tuple(dict.fromkeys(notes)),
    )


def _with_backends(farm: Farm, cache: Cache) -> Farm:
    """Return a farm with the backends that it refers to, as if they were written by hand."""
    if farm.spec.backends_from is None:
        return farm
    service = ServiceKey(farm.metadata.namespace, farm.spec.backends_from.service)
    spec = resolved_spec(farm.spec, cache.slices.of(service)).model_copy(update={"backends_from": None})
    return farm.model_copy(update={"spec": spec})


def _written(body: JsonObject, there: JsonObject | None) -> JsonObject:
    """Return a farm as it is after the operator wrote it."""
    before: JsonObject = there["metadata"] if there is not None else {"generation": 1, "resourceVersion": "0"}
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
    return f"{type(error).__name__}: {error}"
