"""Manifests from files, completed as the API server would."""

import ipaddress
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from kube_nftlb import errors
from kube_nftlb.commands.example_endpoints import examples, families
from kube_nftlb.kube.resources import FARMS, NODES, PODS, POLICIES, SERVICES, JsonObject, Resource
from kube_nftlb.operator.informers.kinds import KINDS

_READ: Final = (*KINDS, FARMS, NODES, PODS, POLICIES)
RESOURCES: Final[dict[str, Resource]] = {resource.kind: resource for resource in _READ}
"""The kinds that are read."""

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_EXAMPLE_NETWORKS: Final = ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
_EXAMPLES: Final = 3 * 254


class Manifests(NamedTuple):
    """The objects in the order of the files, and notes for the user."""

    objects: tuple[tuple[Resource, JsonObject], ...]
    notes: tuple[str, ...]


def read(files: Iterable[Path]) -> Manifests:
    """Read files of YAML or JSON, or all of a folder; ``-`` is standard input. Raises UsageError."""
    return complete(raw for path in files for file in _files(path) for raw in parse(_text(file), str(file)))


def _files(path: Path) -> list[Path]:
    """Return a file, or the manifests in a folder, but not in folders of it."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
    if not found:
        raise errors.UsageError(f"no {', '.join(_SUFFIXES)} in the folder {path}")
    return found


def parse(text: str, file: str) -> list[JsonObject]:
    """Return the objects of a file, including those in Lists. Raises UsageError with the file's name."""
    try:
        documents = list(yaml.load_all(text, Loader=yaml.CSafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        hint = (
            "; render the chart's templates first: helm template CHART | kube-nftlb render -f -" if "{{" in text else ""
        )
        raise errors.UsageError(f"{file}: neither YAML nor JSON: {' '.join(str(error).split())}{hint}") from None
    return [raw for document in documents if document is not None for raw in _objects(document, file)]


def complete(raws: Iterable[JsonObject]) -> Manifests:
    """Fill in what the API server would: namespace, uid, resourceVersion and the addresses of Services.

    A Service without an address gets one reserved for documentation (RFC 5737, RFC 3849), and one without
    EndpointSlices the pods of the workloads that it selects, with such addresses.
    """
    listed = list(raws)
    added = examples(listed)
    notes = list(added.notes)
    objects: dict[tuple[str, str, str], tuple[Resource, JsonObject]] = {}
    skipped: dict[str, int] = {}
    for raw in (*listed, *added.objects):
        if raw in added.used and raw["kind"] not in RESOURCES:
            continue
        if (resource := RESOURCES.get(raw["kind"])) is None:
            skipped[raw["kind"]] = skipped.get(raw["kind"], 0) + 1
            continue
        metadata = _metadata(raw, resource)
        key = (resource.kind, metadata["namespace"], metadata["name"])
        if key in objects:
            notes.append(f"{resource.kind} {key[1]}/{key[2]} is defined more than once; the last one is used")
        objects[key] = (resource, {**raw, "metadata": metadata})
    notes.extend(f"ignored {number} of kind {kind}" for kind, number in sorted(skipped.items()))
    addresses = _example_addresses(json.dumps([raw for _, raw in objects.values()], default=str))
    uids = {key: raw["metadata"]["uid"] for key, (_, raw) in objects.items()}
    for key, (resource, before) in objects.items():
        raw = {**before, "metadata": _known_owners(before["metadata"], uids)}
        objects[key] = (resource, raw)
        if resource == SERVICES and (ips := _assigned_ips(raw.get("spec"), addresses)):
            objects[key] = (resource, {**raw, "spec": {**raw["spec"], "clusterIP": ips[0], "clusterIPs": ips}})
            shown = " and ".join(ips)
            notes.append(f"Service {key[1]}/{key[2]} has no address until the API server assigns one; shown as {shown}")
    return Manifests(tuple(objects.values()), tuple(notes))


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text()
    except UnicodeDecodeError:
        raise errors.UsageError(f"cannot read {file}: it is not text") from None
    except OSError as error:
        raise errors.UsageError(f"cannot read {file}: {errors.why(error)}") from None


def _objects(document: Any, file: str) -> Iterator[JsonObject]:
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise errors.UsageError(f"{file}: object without kind: {str(document)[:80]}")
    kind: str = document["kind"]
    if kind.endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            # A list of one kind, such as ServiceList, only names it once.
            named = {"kind": kind.removesuffix("List"), **item} if isinstance(item, dict) else item
            yield from _objects(named, file)
        return
    metadata = document.get("metadata")
    if kind in RESOURCES and not (isinstance(metadata, dict) and metadata.get("name")):
        raise errors.UsageError(f"{file}: {kind} without metadata.name")
    yield document


def _metadata(raw: JsonObject, resource: Resource) -> JsonObject:
    metadata = {key: value for key, value in raw["metadata"].items() if value is not None}
    namespace = str(metadata.get("namespace") or "default") if resource.namespaced else ""
    version = str(metadata.get("resourceVersion", ""))
    return {
        "generation": 1,
        **metadata,
        "name": str(metadata["name"]),
        "namespace": namespace,
        "uid": str(metadata.get("uid") or _uid(raw["kind"], namespace, metadata["name"])),
        "resourceVersion": version if version.isdecimal() else "1",
    }


def _known_owners(metadata: JsonObject, uids: Mapping[tuple[str, str, str], str]) -> JsonObject:
    """Return the metadata with the uids of its owners, by which a farm is matched with its Service."""
    owners = metadata.get("ownerReferences")
    if not isinstance(owners, list) or not all(isinstance(owner, dict) for owner in owners):
        return metadata
    keys = [(str(owner.get("kind")), metadata["namespace"], str(owner.get("name"))) for owner in owners]
    known = [{"uid": uids.get(key) or _uid(*key), **owner} for key, owner in zip(keys, owners, strict=True)]
    return {**metadata, "ownerReferences": known}


def _uid(kind: str, namespace: str, name: str) -> str:
    return f"{kind}/{namespace}/{name}"


def _assigned_ips(spec: Any, addresses: dict[str, Iterator[str]]) -> list[str]:
    """Return the addresses to assign to a Service; empty if it has some already, or needs none."""
    if not isinstance(spec, dict) or spec.get("clusterIP") or spec.get("type") == "ExternalName":
        return []
    try:
        return [next(addresses[family]) for family in families(spec)]
    except StopIteration:
        raise errors.UsageError(
            f"more than {_EXAMPLES} Services without clusterIP, which is all the example addresses; set some"
        ) from None


def _example_addresses(text: str) -> dict[str, Iterator[str]]:
    """Return documentation addresses that the manifests do not use themselves, by IP family."""
    ipv4 = (str(ip) for network in _EXAMPLE_NETWORKS for ip in ipaddress.ip_network(network).hosts())
    ipv6 = (str(ipaddress.IPv6Address("2001:db8::") + number) for number in itertools.count(1))
    free = {"IPv4": ipv4, "IPv6": ipv6}
    return {family: (ip for ip in ips if f'"{ip}"' not in text) for family, ips in free.items()}
