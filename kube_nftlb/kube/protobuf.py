"""Events of EndpointSlices in the API server's protobuf encoding, as the objects that their JSON would be.

As JSON they are three times as many bytes to every node. Of all kinds that are watched, this one is large and changes
at the pace of programs. Lists stay JSON, which is decoded ten times faster. The messages have only the fields that
``kube_nftlb.endpointslices`` and the caches read, by the numbers in ``generated.proto`` of k8s.io/api/discovery/v1 and
k8s.io/apimachinery; all others are passed over. The library makes their classes from this table, so that neither a
compiler nor generated code is needed.
"""

import functools
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from kube_nftlb.kube.resources import ENDPOINT_SLICES, JsonObject

RESOURCES = frozenset({ENDPOINT_SLICES})
"""The kinds whose events can be asked for in protobuf."""

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
ACCEPT = f"{CONTENT_TYPE};stream=watch,application/json"
"""The Accept header of a watch: the API server's Content-Type tells what it chose."""

MAGIC = b"k8s\x00"
"""The prefix of every object, before an ``Unknown`` with its type: apimachinery/pkg/runtime/serializer/protobuf."""

FRAME_MAX = 64 << 20
"""Bytes of an event: far more than the 1.5 MiB of an object that etcd takes, and short of what would exhaust memory."""

_LENGTH_BYTES = 4

_ENDPOINTS_CACHED = 1 << 13
"""A change brings all endpoints of its slice, a hundred by default, and all but one are as before."""
_ENDPOINT_CACHED_MAX = 1 << 10
"""Maximum number of bytes of one: others are far shorter, and a tenant may write ever new ones of a megabyte."""

_Fields = dict[str, tuple[int, str]]
_FIELDS: dict[str, _Fields] = {
    "TypeMeta": {"apiVersion": (1, "string"), "kind": (2, "string")},
    "Unknown": {"typeMeta": (1, "TypeMeta"), "raw": (2, "bytes")},
    "RawExtension": {"raw": (1, "bytes")},
    "WatchEvent": {"type": (1, "string"), "object": (2, "RawExtension")},
    "Status": {"message": (3, "string"), "reason": (4, "string"), "code": (6, "int32")},
    "ObjectMeta": {
        "name": (1, "string"),
        "namespace": (3, "string"),
        "uid": (5, "string"),
        "resourceVersion": (6, "string"),
        "labels": (11, "repeated Entry"),
        "annotations": (12, "repeated Entry"),
    },
    # A map is sent as its entries.
    "Entry": {"key": (1, "string"), "value": (2, "string")},
    "EndpointSlice": {
        "metadata": (1, "ObjectMeta"),
        "endpoints": (2, "repeated bytes"),
        "ports": (3, "repeated EndpointPort"),
        "addressType": (4, "string"),
    },
    "Endpoint": {
        "addresses": (1, "repeated string"),
        "conditions": (2, "EndpointConditions"),
        "targetRef": (4, "ObjectReference"),
        "nodeName": (6, "string"),
        "hints": (8, "EndpointHints"),
    },
    "EndpointConditions": {"ready": (1, "bool"), "serving": (2, "bool"), "terminating": (3, "bool")},
    "ObjectReference": {"kind": (1, "string"), "name": (3, "string")},
    "EndpointHints": {"forZones": (1, "repeated Hint"), "forNodes": (2, "repeated Hint")},
    "Hint": {"name": (1, "string")},
    "EndpointPort": {"name": (1, "string"), "protocol": (2, "string"), "port": (3, "int32")},
}


def event(frame: bytes) -> JsonObject:
    """Return an event of a watch as its JSON would be: ``type`` and ``object``. Raises ValueError."""
    plain = _plain(_message("WatchEvent", frame))
    return {"type": plain.get("type", ""), "object": decoded(plain.get("object", {}).get("raw", b""))}


def decoded(data: bytes) -> JsonObject:
    """Return an EndpointSlice or a Status. Raises ValueError."""
    if not data.startswith(MAGIC):
        raise ValueError(f"this is not protobuf from an API server: {data[:64]!r}")
    unknown = _plain(_message("Unknown", data[len(MAGIC) :]))
    kind, raw = unknown.get("typeMeta", {}).get("kind"), unknown.get("raw", b"")
    if kind not in {"EndpointSlice", "Status"}:
        raise ValueError(f"an object of the kind {kind}, which was not asked for")
    plain = _plain(_message(kind, raw))
    if "endpoints" in plain:
        plain["endpoints"] = [
            _known_endpoint(each) if len(each) <= _ENDPOINT_CACHED_MAX else _endpoint(each)
            for each in plain["endpoints"]
        ]
    return plain


async def frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split chunks into the frames of a watch, each sent behind its length. Raises ValueError if one is cut off."""
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) >= _LENGTH_BYTES:
            length = int.from_bytes(buffer[:_LENGTH_BYTES], "big")
            if length > FRAME_MAX:
                raise ValueError(f"an event of {length} bytes, at most {FRAME_MAX} are read")
            if len(buffer) < _LENGTH_BYTES + length:
                break
            yield bytes(buffer[_LENGTH_BYTES : _LENGTH_BYTES + length])
            del buffer[: _LENGTH_BYTES + length]
    if buffer:
        raise ValueError(f"the stream ends {len(buffer)} bytes into an event")


def _endpoint(raw: bytes) -> JsonObject:
    return _plain(_message("Endpoint", raw))


_known_endpoint = functools.lru_cache(_ENDPOINTS_CACHED)(_endpoint)


def _message(name: str, data: bytes) -> Message:
    try:
        message: Message = _CLASSES[name].FromString(data)
    except DecodeError as error:
        raise ValueError(f"malformed {name}: {error}") from error
    return message


def _plain(message: Message) -> JsonObject:
    """Return the fields that were sent, under the names that JSON has for them."""
    plain: JsonObject = {}
    for field, value in message.ListFields():
        name = field.name
        if field.message_type is None:
            plain[name] = list(value) if name in _REPEATED else value
        elif name in _MAPS:
            plain[name] = {entry.key: entry.value for entry in value}
        elif name in _REPEATED:
            plain[name] = [_plain(each) for each in value]
        else:
            plain[name] = _plain(value)
    return plain


def _classes() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="kube_nftlb.proto", package="kube_nftlb", syntax="proto2")
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for name, (number, type_) in fields.items():
            field = described.field.add(name=name, number=number)
            repeated, bare = type_.startswith("repeated "), type_.removeprefix("repeated ")
            field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            if bare in _FIELDS:
                field.type, field.type_name = field.TYPE_MESSAGE, f".kube_nftlb.{bare}"
            else:
                field.type = getattr(field, f"TYPE_{bare.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"kube_nftlb.{name}")) for name in _FIELDS}


_CLASSES: dict[str, Any] = _classes()
_MAPS = {name for fields in _FIELDS.values() for name, (_, type_) in fields.items() if type_ == "repeated Entry"}
_REPEATED = {name for fields in _FIELDS.values() for name, (_, type_) in fields.items() if type_.startswith("repeated")}
