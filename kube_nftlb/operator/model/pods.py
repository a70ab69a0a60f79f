"""The options in a Pod's annotations, for its backends. No I/O."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kube_nftlb.operator.model import annotation_options
from kube_nftlb.operator.model.annotation_options import BACKEND_OPTIONS, Given
from kube_nftlb.operator.model.rejections import Rejection

KEYS = tuple(option.key for option in BACKEND_OPTIONS)
"""All annotation keys of Pods, without the prefix."""


class PodKey(NamedTuple):
    """The identity of a Pod."""

    namespace: str
    name: str


class PodRecord(NamedTuple):
    """A Pod with annotations of kube-nftlb."""

    resource_version: int
    uid: str
    given: Given
    problems: tuple[Rejection, ...]
    labels: Mapping[str, str] = {}


def selects(selector: Mapping[str, str] | None, labels: Mapping[str, str]) -> bool:
    """Return True if a Service with this selector has Pods with these labels as endpoints, once they have addresses."""
    return bool(selector) and all(labels.get(key) == value for key, value in (selector or {}).items())


def pod_key(raw: dict[str, Any]) -> PodKey:
    """Return the identity of a Pod object."""
    return PodKey(raw["metadata"]["namespace"], raw["metadata"]["name"])


def slim(raw: dict[str, Any]) -> dict[str, Any] | None:
    """Return the part of a Pod's metadata to keep, or None for a Pod without annotations of kube-nftlb."""
    metadata = raw["metadata"]
    texts = annotation_options.annotations(metadata.get("annotations") or {})
    if not texts:
        return None
    identity = {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {"metadata": identity, "texts": texts, "labels": metadata.get("labels") or {}}


def parse_pod(raw: dict[str, Any]) -> PodRecord:
    """Parse what ``slim`` kept. An invalid value or unknown key leaves the default, and is a problem."""
    metadata, texts = raw["metadata"], raw["texts"]
    given, refused = annotation_options.parse(BACKEND_OPTIONS, texts)
    problems = annotation_options.unknown(texts, KEYS, "Pod")
    problems.extend(
        annotation_options.problem(option.key, f"{message}; {annotation_options.instead(option, {})}")
        for option, message in refused.items()
    )
    return PodRecord(int(metadata["resourceVersion"]), metadata["uid"], given, tuple(problems), raw["labels"])
