"""What a Pod's annotations ask of the backends that it is. No I/O."""

from typing import Any, NamedTuple

from kube_nftlb.operator.model import annotation_options
from kube_nftlb.operator.model.annotation_options import BACKEND_OPTIONS, Given
from kube_nftlb.operator.model.rejections import Rejection

KEYS = tuple(option.key for option in BACKEND_OPTIONS)
"""All keys of annotations on a Pod, without their prefix."""


class PodKey(NamedTuple):
    """The identity of a Pod."""

    namespace: str
    name: str


class PodRecord(NamedTuple):
    """A Pod that has annotations of ours."""

    resource_version: int
    uid: str
    given: Given
    problems: tuple[Rejection, ...]


def pod_key(raw: dict[str, Any]) -> PodKey:
    """The identity of a Pod object."""
    return PodKey(raw["metadata"]["namespace"], raw["metadata"]["name"])


def slim(raw: dict[str, Any]) -> dict[str, Any] | None:
    """What is read of a Pod's metadata; None for a Pod without annotations of ours."""
    metadata = raw["metadata"]
    texts = annotation_options.annotations(metadata.get("annotations") or {})
    if not texts:
        return None
    kept = {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {"metadata": kept, "texts": texts}


def parse_pod(kept: dict[str, Any]) -> PodRecord:
    """The record of what ``slim`` kept. A refused value or an unknown key leaves the default, and is a problem."""
    metadata, texts = kept["metadata"], kept["texts"]
    given, refused = annotation_options.parse(BACKEND_OPTIONS, texts)
    problems = annotation_options.unknown(texts, KEYS, "Pod")
    problems.extend(
        annotation_options.problem(option.key, f"{sentence}; {annotation_options.instead(option, {})}")
        for option, sentence in refused.items()
    )
    return PodRecord(int(metadata["resourceVersion"]), metadata["uid"], given, tuple(problems))
