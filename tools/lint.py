"""Lints of our own, which ``make lint`` runs: purity, words that the glossary has better ones for, sizes of packages.

Purity: a module that says in its docstring that it is pure, or stands in a package that says so, imports nothing that
the contract "Decisions are pure" of pyproject.toml forbids, and is not exempt from it there.

Words: ``docs/banned-words.toml`` lists names that the programs and these tools must not have.

Sizes: ``tools/package-lines.toml`` has the lines that each package of ``kube_nftlb`` may have; more take a line in
``CHANGELOG.md`` that says what for.
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
_PURE: Final = re.compile(r"\bPure\b|\bNo I/O\b")
_CONTRACT: Final = "Decisions are pure"


class Module(NamedTuple):
    """A module of a package."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def says_it_is_pure(self) -> bool:
        """Return True if its docstring says so."""
        return _PURE.search(" ".join((ast.get_docstring(self.tree) or "").split())) is not None


def modules(root: Path, *folders: str) -> list[Module]:
    """Return the modules in these folders."""
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    return [Module(_name(path.relative_to(root)), path, ast.parse(path.read_text())) for path in paths]


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def impure(found: list[Module], contract: dict[str, Any]) -> Iterator[str]:
    """Yield a message for each import that a pure module must not have, by the contract of the import linter."""
    packages = {each.name for each in found if each.path.name == "__init__.py" and each.says_it_is_pure}
    ignored = [tuple(rule.split(" -> ")) for rule in contract["ignore_imports"]]
    for module in found:
        parents = {module.name.rsplit(".", number)[0] for number in range(1, module.name.count(".") + 1)}
        if not module.says_it_is_pure and not parents & packages:
            continue
        if any(fnmatchcase(module.name, source) and target == "*" for source, target in ignored):
            yield f"{module.path}: says that it is pure, but pyproject.toml exempts it"
            continue
        for imported in _imports(module.tree):
            allowed = any(fnmatchcase(module.name, source) and imported == target for source, target in ignored)
            if imported in contract["forbidden_modules"] and not allowed:
                yield f"{module.path}: is pure, by its docstring or its package's, but imports {imported}"


def _imports(tree: ast.Module) -> set[str]:
    """Return the packages that a module imports directly."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def banned(found: list[Module], words: dict[str, str]) -> Iterator[str]:
    """Yield a message for each name that a banned word is, also of a module, whatever its case and underscores are.

    ``words`` are the banned words, with what to say instead.
    """
    for module in found:
        for name, line in ((module.path.stem, 1), *_names(module.tree)):
            if (plain := name.strip("_").lower()) in words:
                yield f"{module.path}:{line}: the name {name!r} is banned; instead: {words[plain]}"


def _names(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names that a module gives, with their lines: variables, arguments, functions, classes, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def too_large(programs: Path, allowed: dict[str, dict[str, int]], changelog: str) -> Iterator[str]:
    """Yield a message for each package in the folder ``programs`` that has more lines than it may have.

    ``allowed`` has for each package the lines that it had at first, as ``lines``, and those by which it may grow, under
    words that the changelog has.
    """
    lines = Counter[str]()
    for path in programs.rglob("*.py"):
        package = "modules" if path.parent == programs else path.relative_to(programs).parts[0]
        lines[package] += len(path.read_text().splitlines())
    for package, number in sorted(lines.items()):
        grown = allowed.get(package, {"lines": 0})
        if number > (most := sum(grown.values())):
            yield f"{programs.name}/{package} has {number} lines, {most} are allowed: see tools/package-lines.toml"
        for words in sorted(grown.keys() - {"lines"}):
            if words not in changelog:
                yield f"tools/package-lines.toml: {package} grew for {words!r}, which CHANGELOG.md does not have"


def main() -> int:
    """Lint the checkout. Return the exit status: 1 if anything is wrong."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each["name"].startswith(_CONTRACT))
    words = tomllib.loads((ROOT / "docs/banned-words.toml").read_text())
    programs, others = modules(ROOT, "kube_nftlb", "tools"), modules(ROOT, "lab", "benchmarks")
    sizes = tomllib.loads((ROOT / "tools/package-lines.toml").read_text())
    changelog = " ".join((ROOT / "CHANGELOG.md").read_text().split())
    messages = [
        *impure([*programs, *others], contract),
        *banned(programs, words),
        *too_large(ROOT / "kube_nftlb", sizes, changelog),
    ]
    for message in messages:
        print(message, file=sys.stderr)
    return int(bool(messages))


if __name__ == "__main__":
    sys.exit(main())
