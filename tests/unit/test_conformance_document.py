"""docs/conformance.md names tests; they exist, and it names them all."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "conformance.md").read_text()
TESTS = {
    f"{path.stem}.{node.name}"
    for path in (ROOT / "tests" / "functional" / "conformance").rglob("test_*.py")
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
}


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`(test_\w+\.test_\w+)`", DOCUMENT))
    assert named - TESTS == set()


def test_every_test_is_named() -> None:
    named = set(re.findall(r"`(test_\w+\.test_\w+)`", DOCUMENT))
    assert TESTS - named == set()


def test_every_behaviour_has_a_line() -> None:
    rows = re.findall(r"^\| (A\d+) \| .+ \| .+ \| .+ \|$", DOCUMENT, re.MULTILINE)
    assert rows == [f"A{number}" for number in range(1, 58)]
