import asyncio
import itertools
import logging
from collections.abc import Iterable, Sized
from types import SimpleNamespace
from typing import Any

import kopf
import pytest

from kube_nftlb.operator import kopf_settings, main


def test_kopf_never_gives_up_and_never_writes() -> None:
    settings = kopf.OperatorSettings()
    kopf_settings.configure(settings)
    backoffs = settings.networking.error_backoffs
    assert isinstance(backoffs, Iterable)
    assert not isinstance(backoffs, Sized)
    assert len(list(itertools.islice(backoffs, 1000))) == 1000
    assert list(itertools.islice(backoffs, 2)) == [0.1, 0.2]
    assert settings.posting.enabled is False
    assert settings.peering.standalone
    assert settings.persistence.diffbase_storage.build(body=kopf.Body({"spec": {"a": 1}})) == {}


def test_an_outage_is_told_of_every_half_minute() -> None:
    now = [100.0]
    once = kopf_settings.OncePerOutage(lambda: now[0])
    record = logging.LogRecord("kopf", logging.ERROR, "", 0, "", None, None)
    assert [once.filter(record), once.filter(record)] == [True, False]
    now[0] += 31
    assert once.filter(record)


@pytest.mark.usefixtures("virtual_time")
async def test_credentials_that_are_refused_are_tried_again_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """kopf logs in anew at once, each time."""
    logins: list[float] = []
    now = asyncio.get_running_loop().time

    async def login(_: object) -> None:
        logins.append(now())

    monkeypatch.setattr(kopf_settings, "login", login)
    memo = kopf.Memo(operator=SimpleNamespace(servers=()))
    # kopf's type of it asks for all that kopf passes.
    handler: Any = main.login
    for pause_s in (0, 0, 0, 60):
        await asyncio.sleep(pause_s)
        await handler(memo=memo)
    assert [round(each - logins[0]) for each in logins] == [0, 5, 10, 70]
