"""What our own lints find."""

from pathlib import Path

import pytest

from tools import lint

CONTRACT = {
    "forbidden_modules": ["asyncio", "os", "socket"],
    "ignore_imports": ["pkg.exempt -> *", "pkg.pure.bytes -> socket"],
}
PURE = '"""Decide. Pure: no I/O."""\n'


@pytest.mark.parametrize(
    ("file", "text", "finding"),
    [
        ("pkg/a.py", PURE + "import json\n", ""),
        ("pkg/a.py", PURE + "import os.path\n", "a.py: is pure, by its docstring or its package's, but imports os"),
        (
            "pkg/a.py",
            '"""Decide. No I/O.\n\nMore."""\ndef f() -> None:\n    from asyncio import sleep\n',
            "imports asyncio",
        ),
        ("pkg/a.py", '"""Do I/O."""\nimport os\n', ""),
        ("pkg/pure/a.py", '"""A module of a pure package."""\nimport os\n', "a.py: is pure"),
        ("pkg/pure/bytes.py", PURE + "import socket\n", ""),
        ("pkg/pure/bytes.py", PURE + "import os\n", "imports os"),
        ("pkg/exempt.py", PURE, "says that it is pure, but pyproject.toml exempts it"),
    ],
)
def test_a_module_that_says_it_is_pure_is_held_to_it(tmp_path: Path, file: str, text: str, finding: str) -> None:
    (tmp_path / "pkg/pure").mkdir(parents=True)
    (tmp_path / "pkg/pure/__init__.py").write_text(PURE)
    (tmp_path / file).write_text(text)
    messages = list(lint.impure(lint.modules(tmp_path, "pkg"), CONTRACT))
    assert len(messages) == bool(finding)
    assert not finding or finding in messages[0]


@pytest.mark.parametrize(
    "text",
    ["told = 1", "def f(told): ...", "def _told(): ...", "for told in (): ...", "x._told = 1", "if (told := 1): ..."],
)
def test_a_banned_name_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text(f"{text}\nTold = told_line = 'told'\n")
    (message,) = lint.banned(lint.modules(tmp_path, "pkg"), {"told": "message", "Dirty": "Affected"})
    assert message.startswith(f"{tmp_path}/pkg/a.py:1: the name ")
    assert message.endswith("is banned; instead: message")
