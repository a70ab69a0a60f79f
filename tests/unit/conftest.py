"""Virtual time for unit tests."""

import asyncio

import pytest

from tests.fakes.virtual_time import VirtualTime


@pytest.fixture
async def virtual_time() -> VirtualTime:
    """Let the event loop of the test skip the time in which nothing happens."""
    return VirtualTime(asyncio.get_running_loop())
