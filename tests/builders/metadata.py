"""The metadata of objects, as the API server fills them in."""

from collections.abc import Mapping
from typing import Any

from kube_nftlb import names

CREATED = "2026-01-01T00:00:00Z"


def raw_metadata(
    name: str,
    *,
    namespace: str | None = "default",
    uid: str | None = None,
    version: int = 1,
    generation: int | None = None,
    created: str = CREATED,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: str | None = None,
    owner_uid: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """``owner`` is the name of the Service that controls it; ``more`` are further fields.

    ``annotations`` have kube-nftlb's prefix left out.
    """
    metadata: dict[str, Any] = {
        "name": name,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": created,
        **more,
    }
    if namespace is not None:
        metadata["namespace"] = namespace
    if generation is not None:
        metadata["generation"] = generation
    if labels is not None:
        metadata["labels"] = dict(labels)
    if annotations is not None:
        metadata["annotations"] = {names.ANNOTATION_PREFIX + key: value for key, value in annotations.items()}
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "name": owner,
                "uid": owner_uid or f"uid-{owner}",
                "controller": True,
            }
        ]
    return metadata
