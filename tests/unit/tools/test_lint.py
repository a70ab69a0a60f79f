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
    [
        "told = 1",
        "def f(told): ...",
        "def _told(): ...",
        "for told in (): ...",
        "x._told = 1",
        "if (told := 1): ...",
        "class Told: ...",
        "_TOLD = 1",
    ],
)
def test_a_banned_name_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text(f"{text}\nTelling = told_line = 'told'\n")
    (message,) = lint.banned(lint.modules(tmp_path, "pkg"), {"told": "message", "dirty": "affected"})
    assert message.startswith(f"{tmp_path}/pkg/a.py:1: the name ")
    assert message.endswith("is banned; instead: message")


def test_a_banned_name_of_a_module_is_found(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "told.py").write_text("x = 1\n")
    (message,) = lint.banned(lint.modules(tmp_path, "pkg"), {"told": "message"})
    assert message == f"{tmp_path}/pkg/told.py:1: the name 'told' is banned; instead: message"


@pytest.mark.parametrize(
    ("allowed", "finding"),
    [
        ({"lines": 3}, ""),
        ({"lines": 2}, "programs/agent has 3 lines, 2 are allowed"),
        ({"lines": 2, "Egress policies": 1}, ""),
        ({"lines": 2, "Ingress": 1}, "agent grew for 'Ingress', which CHANGELOG.md does not have"),
        ({"lines": 1, "Egress policies": 1}, "programs/agent has 3 lines, 2 are allowed"),
    ],
)
def test_a_package_grows_only_for_what_the_changelog_has(tmp_path: Path, allowed: dict[str, int], finding: str) -> None:
    programs = tmp_path / "programs"
    (programs / "agent/sync").mkdir(parents=True)
    (programs / "agent/a.py").write_text("1\n")
    (programs / "agent/sync/b.py").write_text("1\n2\n")
    (programs / "cli.py").write_text("1\n2\n3\n")
    sizes = {"agent": allowed, "modules": {"lines": 3}}
    messages = list(lint.too_large(programs, sizes, "- Egress policies of namespaces."))
    assert len(messages) == bool(finding)
    assert not finding or finding in messages[0]


def test_a_new_package_is_allowed_nothing(tmp_path: Path) -> None:
    (tmp_path / "gateway").mkdir()
    (tmp_path / "gateway/a.py").write_text("1\n")
    (message,) = lint.too_large(tmp_path, {}, "")
    assert "gateway has 1 lines, 0 are allowed" in message
