"""The command line is put together once, not at each call."""

import functools
from collections.abc import Iterator

import pytest
from typer import testing


@pytest.fixture(scope="package", autouse=True)
def one_command_line() -> Iterator[None]:
    """Have typer's runner keep what it makes of an app: it takes longer than most commands."""
    with pytest.MonkeyPatch.context() as patch:
        make = testing._get_command  # type: ignore[attr-defined]  # noqa: SLF001 - typer has no option for it
        patch.setattr(testing, "_get_command", functools.cache(make))
        yield
