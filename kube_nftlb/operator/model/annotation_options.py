"""The options that annotations can set. No I/O.

The models mark these fields and their keys (``api.base.Annotation``); each value is validated by the type of its field.
Only valid values leave this module, never the text itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from kube_nftlb import names
from kube_nftlb.api.backend import Backend
from kube_nftlb.api.base import Family, annotation_key, first_message
from kube_nftlb.api.farm import FarmSpec
from kube_nftlb.operator.model.option_text import PerFamily, reader
from kube_nftlb.operator.model.rejections import Rejection
from kube_nftlb.prose import counted

Fields = dict[str, Any]
"""Some fields of a farm or a backend, as at the API server."""

_UNKNOWN_MAX = 3
_SHOWN_MAX = 100
_NOTHING = frozenset(("0", "0/second", "0x0", "-1"))
"""nftlb's values for no limit, no mark and no queue."""


class InvalidValueError(ValueError):
    """An invalid value of a field; the message says what is valid."""


class Option(NamedTuple):
    """A field that an annotation sets; ``path`` is its place in the spec at the API server."""

    key: str
    path: tuple[str, ...]
    default: Any
    allowed: str
    read: Callable[[str], Any]
    """Returns the value of a text, for ``check``. Raises ValueError."""
    check: TypeAdapter[Any]

    def parse(self, text: str) -> PerFamily | None:
        """Return the value of a text; None for nftlb's own default, such as a limit of 0. Raises InvalidValueError."""
        try:
            value = self._checked(self.read(text))
        except ValueError as error:
            if self.default is None and text in _NOTHING:
                return None
            raise InvalidValueError(self._message(text, error)) from None
        return value if isinstance(value, PerFamily) else PerFamily(value, value)

    def put(self, fields: Fields, value: Any) -> Fields:
        """Return fields with this one set."""
        *outer, last = self.path
        if outer:
            return {**fields, outer[0]: {**fields.get(outer[0], {}), last: value}}
        return {**fields, last: value}

    def within(self, fields: Fields) -> Any:
        """Return the field's value in ``fields``, or its default."""
        *outer, last = self.path
        return (fields.get(outer[0], {}) if outer else fields).get(last, self.default)

    def _message(self, text: str, error: ValueError) -> str:
        # The message of a type of ours is better than a description of the type.
        if isinstance(error, ValidationError) and error.errors()[0]["type"] == "value_error" and shown(text) == text:
            return first_message(error)
        return f"{shown(text)!r} is not {self.allowed}"

    def _checked(self, value: Any) -> Any:
        if isinstance(value, PerFamily):
            return PerFamily(*(None if each is None else self._checked(each) for each in value))
        return self.check.dump_python(self.check.validate_python(value), mode="json", by_alias=True)


Given = tuple[tuple[Option, PerFamily], ...]
"""The options that annotations set, in the order of the model's fields."""


class Incompatible(NamedTuple):
    """A value that is invalid in combination with earlier ones."""

    option: Option
    message: str


def options_of(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[Option]:
    """Yield all fields of a model, and of nested models, that an annotation can set, in the model's order."""
    properties = model.model_json_schema(by_alias=True)["properties"]
    for name, field in model.model_fields.items():
        alias = field.alias or name
        key = annotation_key(model, name)
        if key is not None:
            kind: Any = Annotated[(field.annotation, *field.metadata)]
            read, allowed = reader(_types(field.annotation), properties[alias])
            yield Option(
                key=key,
                path=(*path, alias),
                default=field.get_default(call_default_factory=True),
                allowed=allowed,
                read=read,
                check=TypeAdapter(kind),
            )
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from options_of(field.annotation, (*path, alias))


def annotations(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return an object's annotations for kube-nftlb, sorted by their keys without the prefix."""
    return {
        key.removeprefix(names.ANNOTATION_PREFIX): value.strip()
        for key, value in sorted(metadata.items())
        if key.startswith(names.ANNOTATION_PREFIX)
    }


def parse(options: Iterable[Option], texts: Mapping[str, str]) -> tuple[Given, dict[Option, str]]:
    """Return the values of annotations, and a message for each invalid one."""
    given: list[tuple[Option, PerFamily]] = []
    refused: dict[Option, str] = {}
    for option in options:
        if option.key in texts:
            try:
                if (value := option.parse(texts[option.key])) is not None:
                    given.append((option, value))
            except InvalidValueError as error:
                refused[option] = str(error)
    return tuple(given), refused


def fit(
    given: Given, family: Family, base: Fields, error_of: Callable[[Fields], str | None]
) -> tuple[Fields, list[Incompatible]]:
    """Return ``base`` with all options for a family that are valid together, and the incompatible rest.

    ``error_of`` returns why fields are invalid, or None. If all options together are, they are added one by one, in
    the model's order, without those that are invalid after the earlier ones.
    """
    values = [(option, value.of(family)) for option, value in given if value.of(family) is not None]
    together = base
    for option, value in values:
        together = option.put(together, value)
    if not values or error_of(together) is None:
        return together, []
    fields = base
    refused: list[Incompatible] = []
    for option, value in values:
        attempt = option.put(fields, value)
        if (message := error_of(attempt)) is None:
            fields = attempt
        else:
            refused.append(Incompatible(option, message))
    return fields, refused


def problem(key: str, message: str) -> Rejection:
    """Return the problem of an annotation that is not used as written."""
    return Rejection("InvalidAnnotation", f"{names.ANNOTATION_PREFIX}{shown(key)}: {message}")


def unknown(texts: Iterable[str], known: Iterable[str], kind: str) -> list[Rejection]:
    """Return problems for the first unknown keys; an object may have thousands of them."""
    keys = list(known)
    strange = [key for key in texts if key not in keys]
    rest = len(strange) - _UNKNOWN_MAX
    more = f" (and {counted(rest, 'more key')})" if rest > 0 else ""
    message = f"unknown{more}; the annotations of kube-nftlb on a {kind} are: {', '.join(keys)}"
    return [problem(key, message) for key in strange[:_UNKNOWN_MAX]]


def instead(option: Option, fields: Fields) -> str:
    """Return what is used instead of an invalid annotation."""
    value = option.within(fields)
    if value in (None, (), []):
        return "it is ignored"
    if isinstance(value, bool):
        value = "on" if value else "off"
    return f"{value} is used"


def shown(text: str) -> str:
    """Return a user's text, truncated."""
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _types(annotation: Any) -> tuple[Any, ...]:
    return (annotation, *get_args(annotation))


FARM_OPTIONS: Final = tuple(options_of(FarmSpec))
"""The options of Services."""
BACKEND_OPTIONS: Final = tuple(options_of(Backend))
"""The options of Pods."""
