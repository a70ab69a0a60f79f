import itertools
import logging
from collections.abc import Iterable, Sized

import kopf

from kube_nftlb.operator import kopf_settings


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
