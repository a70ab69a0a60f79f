"""Settings as models that are read from environment variables, and the types of their values.

pydantic-settings is not used: it reads the environment of the process, where a mapping is wanted, and expects lists as
JSON.
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Self, get_args

from annotated_types import Interval
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from kube_nftlb import errors

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Variable:
    """The environment variable of a setting, and the chart's value that sets it, if the two mean the same."""

    name: str
    chart: str | None = None


@dataclass(frozen=True)
class Allowed:
    """The allowed values of a type, in words that follow "must be", and how they are parsed if pydantic does not."""

    text: str
    parse: Callable[[str], Any] | None = None
    """Returns the value of a text, or raises ValueError, whose message is shown. Other values are taken as they are."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Have pydantic parse text by ``parse``."""
        if (parse := self.parse) is None:
            return handler(source)
        return core_schema.no_info_plain_validator_function(
            lambda value: parse(value) if isinstance(value, str) else value
        )


class Settings(BaseModel):
    """Settings of a program, or a group of them: each field has a ``Variable`` and a docstring, or is a group."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings. Empty variables count as unset. Raises UsageError, which says what is allowed."""
        values: dict[str, object] = {}
        for name, field in cls.model_fields.items():
            if (group := _group(field)) is not None:
                values[name] = group.from_environment(environ)
            elif value := environ.get(variable(field).name):
                values[name] = value
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise errors.UsageError(_message(cls, error, environ)) from None


class Setting(NamedTuple):
    """A setting as the documents describe it."""

    variable: Variable
    allowed: str
    default: object
    """Its default as a value of Python; None if there is none."""
    description: str


def described(settings: type[Settings]) -> Iterator[Setting]:
    """Yield the settings of a program, those of its groups at their place."""
    for field in settings.model_fields.values():
        if (group := _group(field)) is not None:
            yield from described(group)
        else:
            default = None if field.is_required() or field.default_factory else field.default
            yield Setting(variable(field), allowed(field), default, " ".join((field.description or "").split()))


def variable(field: FieldInfo) -> Variable:
    """Return the environment variable of a field."""
    return next(each for each in field.metadata if isinstance(each, Variable))


def allowed(field: FieldInfo) -> str:
    """Return the allowed values of a field, in words that follow "must be"."""
    metadata = field.metadata
    what = next((each.text for each in metadata if isinstance(each, Allowed)), "")
    if not what and (words := [str(each) for each in get_args(field.annotation)]):
        return f"one of {', '.join(words)}"
    within = next((each for each in metadata if isinstance(each, Interval)), None)
    return what if within is None else f"{what} from {within.ge} to {within.le}"


def _group(field: FieldInfo) -> type[Settings] | None:
    types = (field.annotation, *get_args(field.annotation))
    return next((each for each in types if isinstance(each, type) and issubclass(each, Settings)), None)


def _message(settings: type[Settings], error: ValidationError, environ: Mapping[str, str]) -> str:
    first = error.errors(include_url=False)[0]
    field = settings.model_fields[str(first["loc"][0])]
    name = variable(field).name
    if first["type"] == "missing":
        return f"{name} must be set: {field.description}"
    reason = first["msg"].removeprefix("Value error, ") if first["type"] == "value_error" else ""
    return f"{name}={environ.get(name)!r}: must be {allowed(field)}{': ' * bool(reason)}{reason}"


class ListenAddress(NamedTuple):
    """The address of a server: an IP address or host name, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _listen_address(text: str) -> ListenAddress:
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ValueError
    return ListenAddress(host, int(port))


@dataclass(frozen=True, slots=True)
class NumberRanges:
    """Some numbers, as ranges with their first and last."""

    ranges: tuple[tuple[int, int], ...] = ()
    text: str = "none"
    """As an administrator writes them."""

    def include(self, number: int) -> bool:
        """Return True if a number is one of them."""
        return any(first <= number <= last for first, last in self.ranges)

    def __str__(self) -> str:
        return self.text


def _number_ranges(text: str, low: int, high: int) -> NumberRanges:
    if (text := text.strip()) in ("none", "all"):
        return NumberRanges(((low, high),) if text == "all" else (), text)
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = int(first, 0), int(last if dash else first, 0)
        if not low <= ends[0] <= ends[1] <= high:
            raise ValueError
        ranges.append(ends)
    return NumberRanges(tuple(ranges), text)


def _words(text: str, known: frozenset[str]) -> frozenset[str]:
    if (text := text.strip()) in ("none", "all"):
        return known if text == "all" else frozenset()
    chosen = frozenset(part.strip() for part in text.split(","))
    if not chosen <= known:
        raise ValueError
    return chosen


def number_ranges(low: int, high: int) -> Allowed:
    """Return what makes NumberRanges of text: numbers and ranges, decimal or hexadecimal; ``all``, or ``none``."""

    def parse(text: str) -> NumberRanges:
        try:
            return _number_ranges(text, low, high)
        except ValueError:
            # What int() says of a part helps nobody.
            raise ValueError from None

    words = f"all, none, or numbers and ranges from {low} to {high}, such as 0x1000,0x10000-0xf0000"
    return Allowed(words, parse)


def words_of(known: Iterable[str]) -> Allowed:
    """Return what makes a frozenset of text: words of those known; ``none``, or ``all``."""
    words = frozenset(known)
    return Allowed(f"all, none, or words from {', '.join(sorted(words))}", lambda text: _words(text, words))


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError
    return text == "on"


def networks(text: str) -> tuple[IpNetwork, ...]:
    """Parse comma-separated CIDRs. Raises ValueError, which names the first that is none."""
    return tuple(ipaddress.ip_network(part.strip()) for part in text.split(",") if part.strip())


def _addresses(text: str) -> tuple[ListenAddress, ...]:
    return tuple(_listen_address(part) for part in text.split(",") if part.strip())


_HOST_PORT = "host:port or [IPv6]:port, with a port from 1 to 65535"
Address = Annotated[ListenAddress, Allowed(_HOST_PORT, _listen_address)]
OptionalAddress = Annotated[ListenAddress | None, Allowed(_HOST_PORT, _listen_address)]
Addresses = Annotated[tuple[ListenAddress, ...], Allowed(f"comma-separated {_HOST_PORT}", _addresses)]
Networks = Annotated[tuple[IpNetwork, ...], Allowed("CIDRs such as 10.0.0.0/8,fd00::/64", networks)]
Seconds = Annotated[float, Field(allow_inf_nan=False), Allowed("a number of seconds")]
Number = Annotated[int, Allowed("a whole number")]
Switch = Annotated[bool, Allowed("on or off", _switch)]
Text = Annotated[str, Allowed("text")]
