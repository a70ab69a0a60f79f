import pytest

from lab.kubelet.requests import Request, RequestParser, response_head
from lab.kubelet.servers import peer_text
from lab.traffic import http


def requests_in(*chunks: bytes) -> list[Request]:
    parser, requests = RequestParser(), []
    for chunk in chunks:
        parser.feed(chunk)
        while (request := parser.next()) is not None:
            requests.append(request)
    return requests


def test_a_connection_carries_several_requests() -> None:
    data = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nConnection: close\r\n\r\n"
    assert requests_in(data) == [Request("GET", "/a"), Request("GET", "/b", close=True)]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_requests_are_parsed_from_chunks_of_any_size(size: int) -> None:
    data = b"POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n"
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert requests_in(*chunks) == [Request("POST", "/x", body_length=5), Request("GET", "/")]


def test_http_1_0_closes() -> None:
    assert requests_in(b"GET / HTTP/1.0\r\n\r\n") == [Request("GET", "/", close=True)]


def test_a_plain_line_is_a_request_too() -> None:
    assert [request.is_plain_line for request in requests_in(b"who are you?\n")] == [True]


def test_an_invalid_content_length_counts_as_none() -> None:
    assert requests_in(b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n") == [Request("POST", "/")]


def test_the_client_understands_the_server() -> None:
    body = b"web-1 10.0.0.1\n"
    assert http.parse_answer(response_head(len(body), True) + body) == http.Answer("web-1", "10.0.0.1")
    assert http.parse_head(b"HTTP/1.1 200 OK\r\nX-P") is None


@pytest.mark.parametrize("data", [b"", b"hello\r\n\r\n", b"HTTP/1.1 404 No\r\n\r\nweb-1 10.0.0.1\n"])
def test_replies_that_are_not_a_pods_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        http.parse_answer(data)


@pytest.mark.parametrize(
    ("peer", "text"), [("::ffff:10.0.0.1", "10.0.0.1"), ("fd00::1", "fd00::1"), ("fe80::1%eth0", "fe80::1")]
)
def test_peers_have_the_usual_notation(peer: str, text: str) -> None:
    assert peer_text(peer) == text
