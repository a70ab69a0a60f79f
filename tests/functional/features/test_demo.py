"""What `make demo` shows is what the README promises."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo import Demo
from lab.lab import Lab
from tests.docs import pages

pytestmark = pytest.mark.timeout(300)

README = Path(__file__).parents[3] / "README.md"
COMMAND = "kubectl get nftlbfarms -A"


@pytest.fixture
def fresh() -> Iterator[Lab]:
    lab = Lab.up(f"demo-{os.getpid()}")
    try:
        yield lab
    finally:
        lab.down()


def test_the_demo_ends_with_the_table_of_the_readme(fresh: Lab) -> None:
    said: list[str] = []
    Demo(fresh, said.append).run()
    (promised,) = [
        step.output
        for block in pages.blocks(README.read_text())
        if block.language == "console"
        for step in pages.steps(block.text)
        if step.command.strip() == COMMAND
    ]
    shown = said[said.index(f"$ {COMMAND}") + 1]
    assert pages.constant(shown) == pages.constant(promised)
    assert " 5/5 " in shown
    nodes = said[said.index("$ kubectl get nftlbnodes") + 1].splitlines()[1:]
    assert [re.split(r" +", line)[1:3] for line in nodes] == [["True", "True"]] * 2
    backends = {line.split("\n")[1].split()[0] for line in said if "exec client -- curl" in line}
    assert len(backends) == 5
