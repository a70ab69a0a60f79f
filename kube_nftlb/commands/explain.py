"""``kube-nftlb explain``: the meaning, values and annotation of a field."""

from kube_nftlb import errors
from kube_nftlb.api.schema import annotations, reference
from kube_nftlb.api.schema.annotations import Annotation
from kube_nftlb.api.schema.reference import Row
from kube_nftlb.commands.cluster import terminal


def explain(field: str) -> str:
    """Return the explanation of a field, or of each field that matches.

    Raises UsageError with similar names if there is none.
    """
    rows = reference.rows()
    found = [_entry(row, reference.children(row, rows)) for row in reference.find(field, rows)]
    found += [_annotation(each) for each in annotations.find(field)]
    if not found:
        alike = reference.suggestions(field, rows, [each.short for each in annotations.ANNOTATIONS])
        hint = f"did you mean {', '.join(alike)}?" if alike else "`kube-nftlb explain` lists all fields"
        raise errors.UsageError(f"unknown field or annotation {field!r}: {hint}")
    return "\n\n".join(found)


def print_all() -> None:
    """Print all fields in a table, then the annotations that set none of them alone."""
    # The widest is the last: others are not padded to it.
    table = terminal.columns("FIELD", "ANNOTATION", "NFTLB", "DEFAULT", "VALUES")
    for row in reference.rows():
        annotation = f"{row.short_annotation} ({row.annotated})" if row.annotation else ""
        cells = (row.full_path, annotation, row.nftlb, row.default, row.values or row.type)
        table.add_row(*(terminal.plain(each) for each in cells))
    for each in annotations.ANNOTATIONS:
        cells = (f"farm.{each.sets}" if each.sets else "", f"{each.short} ({each.annotated})", "", "", each.values)
        table.add_row(*(terminal.plain(text) for text in cells))
    terminal.show(table)


def _entry(row: Row, children: list[Row]) -> str:
    lines = [row.full_path, f"  {row.meaning}"] if row.meaning else [row.full_path]
    return _facts(
        lines,
        ("type", row.type),
        ("values", row.values),
        ("required", "yes" if row.required else ""),
        ("default", row.default),
        ("nftlb", row.nftlb),
        ("annotation", f"{row.annotation} on the {row.annotated}" if row.annotation else ""),
        *(("rule", rule) for rule in row.rules),
        *(("field", _child(child)) for child in children),
    )


def _annotation(annotation: Annotation) -> str:
    return _facts(
        [annotation.key, f"  {annotation.meaning}"],
        ("values", annotation.values),
        ("annotation", f"on the {annotation.annotated}"),
        ("sets", f"farm.{annotation.sets}" if annotation.sets else ""),
    )


def _facts(lines: list[str], *facts: tuple[str, str]) -> str:
    return "\n".join([*lines, *(f"  {name + ':':<12}{text}" for name, text in facts if text)])


def _child(row: Row) -> str:
    name = row.path.rpartition(".")[2]
    return f"{name} ({row.type}{', required' if row.required else ''})"
