"""The settings of the fault suite: its form, the seed of its choices, and the folder for its figures.

`make test` runs what has no marker ``long``, `make test-all` everything, both in the short form. ``make faults`` sets
KUBE_NFTLB_TEST_FAULTS=long, and KUBE_NFTLB_FAULT_RECORDS to a folder. KUBE_NFTLB_FAULT_SEED repeats the choices of an
earlier run.
"""

import os
import random
from pathlib import Path
from typing import TypeVar

from benchmarks.records import Records
from tests import engine
from tests.labs import FIGURES_VARIABLE

FORM_VARIABLE, LONG_FORM = "KUBE_NFTLB_TEST_FAULTS", "long"
LONG = os.environ.get(FORM_VARIABLE) == LONG_FORM
SEED = int(os.environ.get("KUBE_NFTLB_FAULT_SEED") or random.randrange(1 << 32))  # noqa: S311 - nothing secret
FOLDER = os.environ.get(FIGURES_VARIABLE)

_T = TypeVar("_T")


def by_form(short: _T, long: _T) -> _T:
    """The value for the form that runs."""
    return long if LONG else short


def chance() -> random.Random:
    """The choices of one test. What pytest shows of a failed test has the seed."""
    print(f"KUBE_NFTLB_FAULT_SEED={SEED}")
    return random.Random(SEED)  # noqa: S311 - the same choices again are wanted


def record(scenario: str, metric: str, unit: str, value: float, **parameters: str | int | float) -> None:
    """Note a figure of the test's engine, if a folder was given."""
    record_of(engine.current(), scenario, metric, unit, value, **parameters)


def record_of(by: str, scenario: str, metric: str, unit: str, value: float, **parameters: str | int | float) -> None:
    """Note a figure of an engine, if a folder was given."""
    if FOLDER:
        with Records(Path(FOLDER)) as records:
            records.add(scenario, by, metric, unit, value, **parameters)


def missing(scenario: str, reason: str) -> None:
    """Note why this machine cannot tell."""
    if FOLDER:
        with Records(Path(FOLDER)) as records:
            records.skip(scenario, engine.current(), reason)
