"""Label selectors as fields of our objects, as Kubernetes has them (metav1.LabelSelector)."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from kube_nftlb.api import rules
from kube_nftlb.api.base import Model
from kube_nftlb.api.rules import Rule

_WITH_VALUES: Final = ("In", "NotIn")

Key = Annotated[str, Field(min_length=1, max_length=317)]
Value = Annotated[str, Field(max_length=63)]

VALUES_RULE: Final = Rule["Requirement"](
    "selector-values",
    "(self.operator in ['In', 'NotIn']) == (size(self.values) > 0)",
    lambda each: (each.operator in _WITH_VALUES) == bool(each.values),
    "In and NotIn need values, Exists and DoesNotExist have none",
)


class Requirement(Model):
    """What one label must be."""

    model_config = ConfigDict(json_schema_extra=rules.schema(VALUES_RULE))

    key: Annotated[Key, Field(description="Name of the label.")]
    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist"],
        Field(description="In: the label has one of the values. NotIn: it has none of them, or is absent."),
    ]
    values: Annotated[tuple[Value, ...], Field(description="Values of In and NotIn.", max_length=32)] = ()

    def met(self, labels: Mapping[str, str]) -> bool:
        """Return true if the labels meet it. One of unknown form, as in no CustomResourceDefinition, is never met."""
        if not VALUES_RULE.holds(self):
            return False
        value = labels.get(self.key)
        if self.operator in _WITH_VALUES:
            return (value in self.values) == (self.operator == "In")
        return (value is not None) == (self.operator == "Exists")


class Selector(Model):
    """Selects objects by their labels. Without requirements it selects all."""

    match_labels: Annotated[
        dict[str, Value],
        Field(description="Labels with their values, all of which must be there.", max_length=16),
    ] = Field(default_factory=dict)
    match_expressions: Annotated[
        tuple[Requirement, ...], Field(description="Requirements, all of which must be met.", max_length=16)
    ] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return true if the labels meet all requirements."""
        equal = all(labels.get(key) == value for key, value in self.match_labels.items())
        return equal and all(each.met(labels) for each in self.match_expressions)
