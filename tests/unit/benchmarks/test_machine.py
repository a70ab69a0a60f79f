"""A full measurement begins once the machine is quiet, or is said to have begun on a busy one."""

import itertools
import os
import time
from collections.abc import Iterable

import pytest

from benchmarks import machine


@pytest.mark.parametrize(("loads", "waits"), [([0.4], 0), ([4.3, 1.2, 0.9], 2), (itertools.repeat(3.0), 60)])
def test_it_waits_for_what_has_just_ended(monkeypatch: pytest.MonkeyPatch, loads: Iterable[float], waits: int) -> None:
    load, slept = iter(loads), list[float]()
    monkeypatch.setattr(os, "getloadavg", lambda: (next(load), 0.0, 0.0))
    monkeypatch.setattr(time, "sleep", slept.append)
    machine.wait_until_quiet()
    assert slept == [5] * waits
