"""NftlbPolicies."""

from typing import Any

from tests.builders.metadata import raw_metadata


def raw_policy(
    name: str = "list",
    *,
    namespace: str = "default",
    version: int = 10,
    generation: int = 1,
    type: str = "deny",  # noqa: A002 - the field's name
    cidrs: list[str] | None = None,
    status: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A list of 10.0.0.0/8 unless ``cidrs`` says otherwise."""
    return {
        "metadata": raw_metadata(name, namespace=namespace, version=version, generation=generation),
        "spec": {"type": type, "cidrs": ["10.0.0.0/8"] if cidrs is None else cidrs},
        **({"status": status} if status is not None else {}),
    }
