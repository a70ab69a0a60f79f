"""Requests are made as the user whom kubeconfig or options impersonate, and otherwise as the one who logs in."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kube_nftlb import errors
from kube_nftlb.kube import kubeconfig as kubeconfigs
from kube_nftlb.kube.client import Kube
from kube_nftlb.kube.impersonation import Impersonation
from kube_nftlb.kube.resources import NODES, PODS
from kube_nftlb.kube.servers import ApiServers
from kube_nftlb.operator import kopf_settings

JANE: dict[str, Any] = {
    "as": "jane",
    "as-uid": "7",
    "as-groups": ["shop", "dev"],
    "as-user-extra": {"example.com/Scope": ["a", "b"]},
}
HEADERS = [
    ("Impersonate-User", "jane"),
    ("Impersonate-Uid", "7"),
    ("Impersonate-Group", "shop"),
    ("Impersonate-Group", "dev"),
    ("Impersonate-Extra-example.com%2FScope", "a"),
    ("Impersonate-Extra-example.com%2FScope", "b"),
]


class Server:
    """An API server; ``requests`` are the methods and the headers that impersonate."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, list[tuple[str, str]]]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        found = [(key, value) for key, value in request.headers.items() if key.startswith("Impersonate-")]
        self.requests.append((request.method, found))
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    def kubeconfig(self, path: Path, user: Any) -> Path:
        context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
        text = json.dumps(
            {
                "clusters": [{"name": "a", "cluster": {"server": self.url}}],
                "users": [{"name": "other", "user": {"as": "root"}}, {"name": "a", "user": user}],
                "contexts": [context],
                "current-context": "a",
            }
        )
        path.write_text(text)
        return path


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server, application = Server(), web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    async with TestServer(application) as started:
        server.url = str(started.make_url("")).rstrip("/")
        yield server


@pytest.mark.parametrize(
    ("user", "options", "expected"),
    [
        ({}, Impersonation(), []),
        (JANE, Impersonation(), HEADERS),
        ({"token": "t"}, Impersonation("joe"), [("Impersonate-User", "joe")]),
        (
            JANE,
            Impersonation("joe", groups=("ops",)),
            [("Impersonate-User", "joe"), HEADERS[1], ("Impersonate-Group", "ops"), *HEADERS[4:]],
        ),
        (JANE, Impersonation(uid="8"), [HEADERS[0], ("Impersonate-Uid", "8"), *HEADERS[2:]]),
    ],
)
async def test_reads_and_writes_are_made_as_the_user_who_is_impersonated(
    server: Server, tmp_path: Path, user: Any, options: Impersonation, expected: list[tuple[str, str]]
) -> None:
    path = server.kubeconfig(tmp_path / "config", user)
    async with await Kube.connect(path, impersonate=options) as kube:
        await kube.get(NODES, "a")
        await kube.list(PODS)
        await kube.patch(PODS, "a", {}, "default")
        await kube.text("/log", {})
    assert server.requests == [(method, expected) for method in ("GET", "GET", "PATCH", "GET")]


async def test_the_operator_does_so_too(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "config", JANE)))
    context = await kopf_settings.login(ApiServers())
    async with context.aiohttp_session as session, session.get(f"{context.server}/api"):
        pass
    assert server.requests == [("GET", HEADERS)]


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"as-groups": ["system:masters"]}, "are impersonated with a user only"),
        ({"as": "jane", "as-groups": "dev"}, "it is no kubeconfig"),
        ({"as": "jane", "as-user-extra": {"scope": "a"}}, "it is no kubeconfig"),
        ({"as": "jane\r\nHost: x"}, "nobody can be impersonated as"),
    ],
)
async def test_what_cannot_be_said_to_the_api_server_is_refused(tmp_path: Path, user: Any, expected: str) -> None:
    path = Server().kubeconfig(tmp_path / "config", user)
    path.write_text(path.read_text().replace('"server": ""', '"server": "http://127.0.0.1:1"'))
    with pytest.raises(errors.UnavailableError, match=expected):
        await kubeconfigs.load(path)


def test_an_object_without_a_name_is_not_asked_for_as_if_it_were_all() -> None:
    with pytest.raises(ValueError, match="the name of one of pods is empty"):
        PODS.path("default", "")
