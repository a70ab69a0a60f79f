"""EndpointSlices in protobuf. tests/functional/features/test_slice_events.py has a real API server."""

import tracemalloc
from collections.abc import AsyncIterator

import pytest

from kube_nftlb.kube import protobuf

Value = int | str | bytes


def encoded(*fields: tuple[int, Value]) -> bytes:
    """A message on the wire, by the numbers of its fields: numbers as varints, all else behind a length."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(bytes((number << 3, value)))
        else:
            data = value.encode() if isinstance(value, str) else value
            parts.append(varint(number << 3 | 2) + varint(len(data)) + data)
    return b"".join(parts)


def varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*parts, number))


def framed(kind: str, type_: str, raw: bytes) -> bytes:
    unknown = b"k8s\0" + encoded((1, encoded((2, kind))), (2, raw))
    return encoded((1, type_), (2, encoded((1, unknown))))


METADATA = encoded((1, "web-1"), (3, "default"), (6, "7"), (11, encoded((1, "app"), (2, "web"))), (17, "managed"))
ENDPOINT = encoded((1, "10.0.0.1"), (2, encoded((1, 0), (3, 1))), (4, encoded((1, "Pod"), (3, "a"))), (7, "zone"))
PORT = encoded((1, "http"), (2, "TCP"), (3, 80))
SLICE = encoded((1, METADATA), (2, ENDPOINT), (2, encoded((1, "10.0.0.2"))), (3, PORT), (4, "IPv4"))


def test_an_event_is_what_its_json_would_be() -> None:
    assert protobuf.event(framed("EndpointSlice", "MODIFIED", SLICE)) == {
        "type": "MODIFIED",
        "object": {
            "metadata": {"name": "web-1", "namespace": "default", "resourceVersion": "7", "labels": {"app": "web"}},
            "addressType": "IPv4",
            "endpoints": [
                {
                    "addresses": ["10.0.0.1"],
                    "conditions": {"ready": False, "terminating": True},
                    "targetRef": {"kind": "Pod", "name": "a"},
                },
                {"addresses": ["10.0.0.2"]},
            ],
            "ports": [{"name": "http", "protocol": "TCP", "port": 80}],
        },
    }


def test_an_error_has_its_reason() -> None:
    frame = framed("Status", "ERROR", encoded((3, "too old"), (4, "Expired"), (6, 100)))
    assert protobuf.event(frame)["object"] == {"message": "too old", "reason": "Expired", "code": 100}


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (b"\xff" * 9, "malformed WatchEvent"),
        (b"", "not protobuf from an API server"),
        (encoded((1, "ADDED"), (2, encoded((1, '{"kind":"EndpointSlice"}')))), "not protobuf from an API server"),
        (framed("EndpointSlice", "ADDED", SLICE[:-3]), "malformed EndpointSlice"),
        (framed("EndpointSlice", "ADDED", encoded((2, b"\xff"))), "malformed Endpoint"),
        (framed("Secret", "ADDED", SLICE), "of the kind Secret, which was not asked for"),
    ],
)
def test_what_is_not_an_event_is_told_apart(frame: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        protobuf.event(frame)


async def chunks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("size", [1, 3, 64, 1_000_000])
async def test_frames_are_split_whatever_their_length_and_the_packets(size: int) -> None:
    sent = [b"a", b"b" * 3_000, b"", b"c"]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in sent)
    assert [frame async for frame in protobuf.frames(chunks(stream, size))] == sent


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [(b"\0\0\0\5abc", "ends 7 bytes into an event"), (b"\xff\0\0\0", "an event of 4278190080 bytes, at most")],
)
async def test_a_stream_that_is_cut_off_or_endless_is_broken(stream: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        _ = [frame async for frame in protobuf.frames(chunks(stream, 64))]


def test_endpoints_of_a_megabyte_are_not_remembered() -> None:
    tracemalloc.start()
    try:
        for number in range(20):
            endpoint = encoded((1, "10.0.0.1"), (4, encoded((1, "Pod"), (3, f"{number}" + "x" * (1 << 20)))))
            raw = encoded((1, METADATA), (2, endpoint), (4, "IPv4"))
            (found,) = protobuf.event(framed("EndpointSlice", "MODIFIED", raw))["object"]["endpoints"]
            assert len(found["targetRef"]["name"]) > 1 << 20
        del endpoint, raw, found
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()
