"""Which namespaces an object admits, by their labels."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from kube_nftlb.api.base import ForeignModel, OptionalList
from kube_nftlb.api.selector import Requirement, Selector


class ForeignRequirement(Requirement):
    """A requirement without the bounds that ours have. One of an unknown operator is never met."""

    key: str
    operator: str  # type: ignore[assignment]
    values: OptionalList[str] = ()


class ForeignSelector(Selector):
    """A metav1.LabelSelector without the bounds that ours have."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: OptionalList[ForeignRequirement] = ()


class AdmittedNamespaces(ForeignModel):
    """``namespaces`` of allowedRoutes or allowedListeners; without ``from`` the default of these applies."""

    source: Annotated[str | None, Field(alias="from")] = None
    selector: ForeignSelector | None = None

    def admits(self, own: str, other: str, labels: Mapping[str, str] | None, default: str) -> bool:
        """Return True if an object in the namespace ``own`` admits those of the namespace ``other``.

        ``labels`` are those of the other namespace, None if it is unknown; ``default`` stands for a missing ``from``.
        """
        source = self.source or default
        if source == "Selector":
            return self.selector is not None and labels is not None and self.selector.selects(labels)
        return source == "All" or (source == "Same" and own == other)
