"""Pages of the reference, made of what the code declares: options, metrics, events, errors.

Names, kinds, levels, defaults and statuses are read from the code, and the sentences that explain
them from the tables of the pages that people write. What does not have a sentence is an error.
"""

import ast
import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_type_hints

from headrace.connector.commands.options import Section, every_section
from headrace.plugins.config.forms import default_of, is_required, plain_type
from headrace.plugins.config.options import Option, declared_options, unit_in

ROOMS: Final = ("connector", "plugins", "sinks", "sources")
_LEVELS: Final = ("debug", "info", "warning", "error", "exception")
_METRIC: Final = re.compile(r"headrace_\w+")
_TYPES: Final[Mapping[object, str]] = {
    bool: "boolean",
    float: "number",
    int: "whole number",
    object: "any",
    str: "text",
    tuple: "list",
}
_PATTERN_MAX: Final = 60  # Characters; a longer pattern is a list of names.
_UNITS: Final = {"ms": "ms", "seconds": "s", "bytes": "bytes", "kbytes": "KiB"}


class UndocumentedError(Exception):
    """The code declares something that no page explains."""


@functools.cache
def modules(root: Path, *words: str) -> list[ast.Module]:
    """Return the modules of all rooms below *root* that have one of *words*, in their order."""
    paths = [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]
    texts = [path.read_text("utf-8") for path in paths]
    return [ast.parse(text) for text in texts if any(word in text for word in words)]


@dataclass(slots=True)
class ErrorClass:
    """An error as it is declared: its doc, and what is not inherited."""

    doc: str
    bases: list[str]
    own: dict[str, object]


def errors_of(trees: Iterable[ast.Module]) -> dict[str, tuple[int, bool, str]]:
    """Return exit status, whether it is tried again, and the doc of each code of an error."""
    classes: dict[str, ErrorClass] = {}
    trees = list(trees)
    constants = dict(pair for tree in trees for pair in _constants(tree.body))
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                own = dict(_constants(node.body, constants))
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                doc = (ast.get_docstring(node) or "").split("\n\n")[0].replace("\n", " ")
                if node.name not in classes or "code" in own:
                    classes[node.name] = ErrorClass(doc, bases, own)
    found = {}
    for name, each in classes.items():
        if isinstance(each.own.get("code"), str) and _inherits(classes, name):
            status = _inherited(classes, name, "exit_status")
            again = _inherited(classes, name, "restartable")
            found[str(each.own["code"])] = (int(str(status)), bool(again), each.doc)
    return found


def _inherits(classes: Mapping[str, ErrorClass], name: str) -> bool:
    if name == "HeadraceError":
        return True
    return name in classes and any(_inherits(classes, base) for base in classes[name].bases)


def _inherited(classes: Mapping[str, ErrorClass], name: str, key: str) -> object:
    each = classes.get(name)
    if each is None or key in each.own:
        return None if each is None else each.own[key]
    values = (_inherited(classes, base, key) for base in each.bases)
    return next((value for value in values if value is not None), None)


def _constants(
    body: Iterable[ast.stmt], known: Mapping[str, object] | None = None
) -> Iterator[tuple[str, object]]:
    """Yield what *body* assigns: literals, and names of *known*."""
    for node in body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                yield target.id, value.value
            elif isinstance(target, ast.Name) and isinstance(value, ast.Name) and known:
                yield target.id, known.get(value.id)


def metrics_of(trees: Iterable[ast.Module]) -> dict[str, tuple[str, str]]:
    """Return kind and HELP text of each metric whose name is a literal."""
    found: dict[str, tuple[str, str]] = {}
    for tree in trees:
        for scope in ast.walk(tree):
            if isinstance(scope, ast.Module | ast.FunctionDef):
                found |= _metrics_in(scope)
    return found


def _metrics_in(scope: ast.Module | ast.FunctionDef) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the metrics that are made in *scope*: one by one, or in a loop over a table."""
    texts = dict(_constants(scope.body))
    tables: list[tuple[str, str]] = []
    loop = ""
    for node in ast.walk(scope):
        if isinstance(node, ast.Dict):
            tables += _table_of(node)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        if node.func.id in ("CounterGroup", "WaitingCounter"):
            given = {
                k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)
            }
            kind = "counter" if node.func.id == "CounterGroup" else "gauge"
            yield str(given["metric"]), (kind, str(given["doc"]))
        elif node.func.id in ("gauge", "counter", "Measure"):
            kind = _kind_of(node, node.func.id)
            name, doc = (_text(each, texts) for each in node.args[:2])
            if _METRIC.fullmatch(name):
                yield name, (kind, doc)
            elif isinstance(node.args[0], ast.Name):
                loop = kind
    if loop:
        yield from ((name, (loop, doc)) for name, doc in tables)


def _table_of(node: ast.Dict) -> Iterator[tuple[str, str]]:
    for key, value in zip(node.keys, node.values, strict=True):
        name = _text(key, {})
        if _METRIC.fullmatch(name) and isinstance(value, ast.Tuple):
            yield name, _text(value.elts[0], {})


def _kind_of(call: ast.Call, function: str) -> str:
    if function != "Measure":
        return function
    kind = call.args[2]
    return kind.attr.lower() if isinstance(kind, ast.Attribute) else ""


def _text(node: ast.expr | None, known: Mapping[str, object]) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return str(known.get(node.id, "")) if isinstance(node, ast.Name) else ""


@dataclass(slots=True)
class Event:
    """An event of the log: at which levels, with which fields."""

    levels: set[str] = field(default_factory=set)
    fields: dict[str, None] = field(default_factory=dict)


def events_of(trees: Iterable[ast.Module]) -> dict[str, Event]:
    """Return the events that are logged by a literal name."""
    found: defaultdict[str, Event] = defaultdict(Event)
    for tree in trees:
        for node in ast.walk(tree):
            if not (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
            ):
                continue
            level = node.func.attr
            if level == "_log" and len(node.args) > 1:  # It logs for a split.
                found[_text(node.args[1], {})].fields |= {"split": None, "error": None}
                continue
            name = _text(node.args[0], {})
            if level not in _LEVELS or not re.fullmatch(r"[a-z]+(?:_[a-z]+)*", name):
                continue
            if "log" not in ast.unparse(node.func.value):
                continue
            found[name].levels.add("error" if level == "exception" else level)
            found[name].fields |= dict.fromkeys(
                k.arg for k in node.keywords if k.arg and k.arg != "exc_info"
            )
    return dict(found)


def explained(text: str, heading: str, columns: int) -> dict[str, list[str]]:
    """Return the rows of the tables under *heading* of a page, by the names in the first cell."""
    start = re.search(rf"^## {re.escape(heading)}$", text, re.MULTILINE)
    section = (
        re.split(r"^## ", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0] if start else ""
    )
    rows: dict[str, list[str]] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == columns:
            rows |= dict.fromkeys(re.findall(r"`(\w+)`", cells[0]), cells[1:])
    return rows


def _rebased(cell: str, page: str) -> str:
    """Return *cell* of *page*, with links as they lead from a page one folder deeper."""
    cell = re.sub(r"\]\(#", f"](../{page}#", cell)
    return re.sub(r"\]\((?!\.\./|https?:)", "](../", cell)


def _row(name: str, *cells: str) -> str:
    return f'| <span id="{name}"></span>[`{name}`](#{name}) | {" | ".join(cells)} |\n'


def _known(names: Iterable[str], rows: Iterable[str], page: str) -> list[str]:
    """Return *names* in the order of their *rows* on *page*, of which each has one."""
    missing = sorted({*names} - {*rows})
    if missing:
        raise UndocumentedError(f"{page} has no row for {', '.join(missing)}")
    return [name for name in rows if name in {*names}]


def errors_page(root: Path) -> str:
    """Return the page of the errors' codes."""
    rows = explained((root / "docs" / "operations.md").read_text("utf-8"), "Errors", 3)
    declared = errors_of(modules(root, "Error(", "_CODE"))
    lines = [
        _row(
            code, str(status), "yes" if again else "", doc, _rebased(rows[code][1], "operations.md")
        )
        for code in _known(declared, rows, "operations.md")
        for status, again, doc in [declared[code]]
    ]
    return _ERRORS + "".join(lines)


def events_page(root: Path) -> str:
    """Return the page of the log's events."""
    rows = explained((root / "docs" / "operations.md").read_text("utf-8"), "The log", 3)
    declared = events_of(modules(root, "log"))
    _known(declared, rows, "operations.md")
    lines = [
        _row(
            name,
            ", ".join(sorted(found.levels)) or level,
            ", ".join(f"`{each}`" for each in found.fields),
            _rebased(text, "operations.md"),
        )
        for name, (level, text) in rows.items()
        for found in [declared.get(name, Event())]
    ]
    return _EVENTS + "".join(lines)


def metrics_page(root: Path) -> str:
    """Return the page of the metrics."""
    rows = documented_metrics((root / "docs" / "metrics.md").read_text("utf-8"))
    declared = metrics_of(modules(root, "headrace_"))
    lines = [
        _row(name, kind, rows[name][0], f"{doc}<br>{_rebased(rows[name][1], 'metrics.md')}")
        for name in _known(declared, rows, "metrics.md")
        for kind, doc in [declared[name]]
    ]
    return _METRICS + "".join(lines)


def documented_metrics(text: str) -> dict[str, tuple[str, str, str]]:
    """Return labels, sentence and kind of each metric that has a row on the page."""
    found = {}
    for heading in ("The job", "The source `cassandra`", "Bulk work"):
        for name, (kind, labels, means) in explained(text, heading, 4).items():
            found[name] = (labels, means, kind)
    for name, (kind, means) in explained(text, "The agent", 3).items():
        found.setdefault(name, ("", means, kind))
    return found


def options_page(_: Path) -> str:
    """Return the page of the options."""
    sections: dict[type, list[tuple[str, Section]]] = {}
    for name, section in every_section():
        sections.setdefault(section.config_class, []).append((name, section))
    parts = [_OPTIONS]
    for config_class, found in sections.items():
        name, first = found[0]
        where = "; ".join(dict.fromkeys(section.place for _, section in found))
        parts.append(f"\n## {first.kind.capitalize()} `{name}`\n\n{_sentence(where)}\n\n")
        parts.append("| option | type | default | means |\n|---|---|---|---|\n")
        hints = get_type_hints(config_class)
        for key, (declared_field, declared) in declared_options(config_class).items():
            parts.append(_option_row(key, hints[declared_field.name], declared_field, declared))
    return "".join(parts)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _option_row(
    key: str,
    hint: object,
    declared_field: dataclasses.Field[Any],  # Any: a field of any type.
    declared: Option,
) -> str:
    if declared.keys_allowed:
        pattern = declared.keys_allowed.replace("|", "\\|")
        keys = f"keys like `{pattern}`" if len(pattern) < _PATTERN_MAX else "other keys"
        return f"| {keys} | text | none | {declared.doc} |\n"
    default = "required" if is_required(declared_field) else default_of(declared_field)
    shown = default if default == "required" else f"`{default}`" if default else "none"
    facts = [_TYPES.get(plain_type(hint)[0], "mapping")]
    unit = declared.unit or unit_in(key)
    if unit and facts[0] in ("number", "whole number"):
        facts.append(f"in {_UNITS[unit]}, or with a unit")
    if declared.minimum is not None or declared.maximum is not None:
        facts.append(_range(declared))
    if declared.secret:
        facts.append("a secret: only a reference")
    choices = (
        f" One of {', '.join(f'`{c}`' for c in declared.choices)}." if declared.choices else ""
    )
    doc = f"{declared.doc}{choices}".replace("|", "\\|")
    return f"| `{key}` | {', '.join(facts)} | {shown} | {doc} |\n"


def _range(declared: Option) -> str:
    low, high = _amount(declared.minimum), _amount(declared.maximum)
    if low and high:
        return f"{low} to {high}"
    return f"at least {low}" if low else f"at most {high}"


def _amount(number: float | None) -> str:
    return "" if number is None else f"{number:,}".removesuffix(".0")


PAGES: Final[Mapping[str, Callable[[Path], str]]] = {
    "reference/errors.md": errors_page,
    "reference/events.md": events_page,
    "reference/metrics.md": metrics_page,
    "reference/options.md": options_page,
}
_ERRORS: Final = """# Error codes

Each code of an error, with the exit status of a command that ends with it. *Again*: what failed
with it is started again by itself.
How a message is built, and what to do by symptom, is in [operations](../operations.md#errors).

| code | status | again | is | what to do |
|---|---|---|---|---|
"""
_EVENTS: Final = """# Events

Each event of [the log](../operations.md#the-log). An event may have more fields than these, such as
`job` and `split`: those of the part of headrace that logs it.

| event | level | fields | means |
|---|---|---|---|
"""
_METRICS: Final = """# Names of metrics

Each metric, with its text in `/metrics` (HELP) on the first line. Where they are served, and what
they are for, is in [metrics](../metrics.md).

| metric | kind | labels | means |
|---|---|---|---|
"""
_OPTIONS: Final = """# Options

All options that headrace and its plugins declare, as `headrace options NAME` prints them.
[Job files](../jobs.md) explains those of sources, stores and the runtime.
"""
