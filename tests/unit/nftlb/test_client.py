import asyncio
from pathlib import Path

import httpx
import pytest

from kube_nftlb import errors
from kube_nftlb.nftlb.client import NftlbClient
from kube_nftlb.nftlb.requests import Request
from tests.fakes.nftlb import KEY, FakeNftlb

POST = Request("POST", "/farms", b'{"farms": [{"name": "f"}]}')


def client(folder: Path, transport: httpx.AsyncBaseTransport) -> NftlbClient:
    return NftlbClient("http://nftlb", folder / "key", transport=transport)


async def test_a_new_key_is_read_when_nftlb_no_longer_takes_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of the daemon before")
    nftlb = FakeNftlb()
    talk = client(tmp_path, nftlb.transport())
    with pytest.raises(errors.NftlbError, match="401"):
        await talk.change(POST)
    (tmp_path / "key").write_text(KEY)
    await talk.change(POST)
    assert list(nftlb.farms) == ["f"]


async def test_another_daemon_is_noticed_though_a_request_has_taken_its_key(tmp_path: Path) -> None:
    nftlb = FakeNftlb()
    nftlb.key = "first"
    (tmp_path / "key").write_text("first")
    talk = client(tmp_path, nftlb.transport())
    await talk.farms()
    talk.adopted()
    assert not talk.restarted()
    nftlb.key = "second"
    (tmp_path / "key").write_text("second")
    await talk.change(POST)
    assert talk.restarted()
    await talk.farms()
    assert talk.restarted(), "whoever reads the farms may not send those again that it has not"
    assert talk.adopted()
    assert not talk.restarted()


async def test_without_a_key_nftlb_counts_as_unreachable(tmp_path: Path) -> None:
    with pytest.raises(errors.NftlbUnreachableError, match="has not written its key"):
        await client(tmp_path, FakeNftlb().transport()).farms()


async def test_why_nobody_answers_is_told_in_the_words_of_the_system(tmp_path: Path, unused_tcp_port: int) -> None:
    (tmp_path / "key").write_text(KEY)
    talk = NftlbClient(f"http://127.0.0.1:{unused_tcp_port}", tmp_path / "key")
    with pytest.raises(errors.NftlbUnreachableError, match=r"^POST /farms: connection refused$"):
        await talk.change(POST)
    await talk.close()


async def test_a_success_with_a_remark_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    body = b'{"farms": [{"name": "f", "scheduler": "magic"}]}'
    with pytest.raises(errors.NftlbError, match="unknown value 'magic'"):
        await client(tmp_path, FakeNftlb().transport()).change(Request("POST", "/farms", body))


async def test_a_broken_connection_is_unreachable_and_no_answer_of_nftlb(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    nftlb = FakeNftlb()
    nftlb.reachable = False
    with pytest.raises(errors.NftlbUnreachableError, match="refused"):
        await client(tmp_path, nftlb.transport()).farms()


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=bytes(range(256))),
        httpx.Response(200, text='{"farms": [{"name": "on'),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"farms": [{"mode": "snat"}]}),
        httpx.Response(500),
        httpx.Response(401),
    ],
    ids=["garbage", "half", "another type", "without a name", "500", "401"],
)
async def test_an_nftlb_that_cannot_list_its_farms_is_unreachable(tmp_path: Path, answer: httpx.Response) -> None:
    (tmp_path / "key").write_text(KEY)
    with pytest.raises(errors.NftlbUnreachableError, match="GET /farms: the answer is no list of farms"):
        await client(tmp_path, httpx.MockTransport(lambda _: answer)).farms()


async def test_a_daemon_that_hangs_is_told_of_before_the_request_ends(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    told: list[str | None] = []
    answers = asyncio.Event()

    async def answer(_: httpx.Request) -> httpx.Response:
        await answers.wait()
        return httpx.Response(200, json={"response": "success"})

    def talk(silent_after_s: float) -> NftlbClient:
        transport = httpx.MockTransport(answer)
        key = tmp_path / "key"
        return NftlbClient(
            "http://nftlb", key, transport=transport, on_silence=told.append, silent_after_s=silent_after_s
        )

    request = asyncio.create_task(talk(0.02).change(POST))
    while not told:
        await asyncio.sleep(0.01)
    assert told == ["POST /farms has not been answered for 0.02 s"]
    answers.set()
    await request
    assert told[1:] == [None]
    # An answer in time is nothing to tell of; a busy machine may take longer than the 0.02 s.
    await talk(60).change(POST)
    assert len(told) == 2


async def test_the_version_is_told_first_and_when_it_changes(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    nftlb, told = FakeNftlb(), list[str]()
    talk = NftlbClient("http://nftlb", tmp_path / "key", transport=nftlb.transport(), on_version=told.append)
    for version in (nftlb.version, nftlb.version, ""):
        nftlb.version = version
        await talk.farms()
    assert told == ["1.0.7+kube-nftlb.7", "unpatched"]
    assert not talk.patched


async def test_nobody_waits_for_a_daemon_that_hangs(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    answers = asyncio.Event()
    asked: list[str] = []

    async def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.method)
        await answers.wait()
        return httpx.Response(200, json={"response": "success"})

    talk = client(tmp_path, httpx.MockTransport(answer))
    talk.patience_s = 0.02
    with pytest.raises(errors.NftlbHangsError, match="POST /farms is not answered"):
        await talk.change(POST)
    with pytest.raises(errors.NftlbHangsError, match="earlier request"):
        await talk.change(POST)
    assert asked == ["POST"]
    answers.set()
    await asyncio.sleep(0.02)
    await talk.change(POST)
    assert asked == ["POST", "POST"]


async def test_a_daemon_that_ends_over_a_request_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    nftlb = FakeNftlb()
    nftlb.deadly.add('"f"')
    with pytest.raises(errors.NftlbEndedError):
        await client(tmp_path, nftlb.transport()).change(POST)


async def test_that_a_daemon_ended_over_a_request_it_hung_over_is_told_with_the_next(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    ends = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        await ends.wait()
        raise httpx.ReadError("connection reset", request=request)

    talk = client(tmp_path, httpx.MockTransport(answer))
    talk.patience_s = 0.02
    with pytest.raises(errors.NftlbHangsError):
        await talk.change(POST)
    ends.set()
    await asyncio.sleep(0.02)
    with pytest.raises(errors.NftlbEndedError, match="POST"):
        await talk.farms()
