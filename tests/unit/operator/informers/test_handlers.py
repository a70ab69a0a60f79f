import asyncio
import itertools
import logging
from collections.abc import Iterable, Sized
from typing import Any, cast

import kopf

from kube_nftlb.kube.servers import ApiServers
from kube_nftlb.operator.informers import handlers
from kube_nftlb.operator.informers.kinds import BY_KOPF


def test_kopf_never_gives_up_and_never_writes() -> None:
    settings = handlers.settings()
    backoffs = settings.networking.error_backoffs
    assert isinstance(backoffs, Iterable)
    assert not isinstance(backoffs, Sized)
    assert len(list(itertools.islice(backoffs, 1000))) == 1000
    assert list(itertools.islice(backoffs, 2)) == [0.1, 0.2]
    assert settings.posting.enabled is False
    assert settings.persistence.diffbase_storage.build(body=kopf.Body({"spec": {"a": 1}})) == {}


def test_every_kind_has_one_low_level_handler_and_nothing_else() -> None:
    registry = handlers.registry(lambda *_: None, ApiServers())
    found = registry._watching.get_all_handlers()  # noqa: SLF001 kopf shows it nowhere else
    assert {handler.id for handler in found} == {resource.plural for resource in BY_KOPF}
    assert not list(registry._changing.get_all_handlers())  # noqa: SLF001
    seen: list[tuple[Any, ...]] = []
    for handler in handlers.registry(lambda *args: seen.append(args), ApiServers())._watching.get_all_handlers():  # noqa: SLF001
        asyncio.run(cast(Any, handler.fn)(event={"type": "ADDED", "object": {"x": 1}}))
    assert seen == [(resource, "ADDED", {"x": 1}) for resource in BY_KOPF]


def test_an_outage_is_told_of_every_half_minute() -> None:
    now = [100.0]
    once = handlers.OncePerOutage(lambda: now[0])
    record = logging.LogRecord("kopf", logging.ERROR, "", 0, "", None, None)
    assert [once.filter(record), once.filter(record)] == [True, False]
    now[0] += 31
    assert once.filter(record)
