"""Every command line that a message or a page names can be typed."""

import argparse
import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from headrace.connector.commands.cli import COMMANDS, main
from headrace.connector.streams.audit.__main__ import audit_parser
from headrace.connector.streams.dead_letters.__main__ import watch_parser
from headrace.plugins.discovery import names
from helpers.settings.native_modules import ROOT

ROOMS: Final = ("connector", "plugins", "sinks", "sources")
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FLAG: Final = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
QUOTED: Final = re.compile(r"`headrace ([a-z][^`]*)`")
LINE: Final = re.compile(r"^(?: {4}|\$ )headrace ([a-z].*(?:\\\n.*)*)", re.MULTILINE)
FOREIGN: Final = {  # Of other programs: `kafka-acls`, `kafka-topics`, the demo's own consumer.
    "offsets_topic.py": {"--add-config", "--alter", "--bootstrap-server", "--topic"},
    "play.py": {"--bootstrap-servers", "--topic"},
    "rights.py": {
        *("--add", "--allow-principal", "--group", "--operation"),
        *("--resource-pattern-type", "--transactional-id"),
    },
    "topics.py": {"--create", "--describe", "--topic"},
    "watch.py": {"--bootstrap-server", "--create", "--topic"},
}
Flags = dict[str, frozenset[str]]


@cache
def flags() -> Flags:
    """Return the flags of every command and verb, with its name; `""` has those before it."""
    seen: dict[str, argparse.ArgumentParser] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "print_help", lambda self: seen.update(last=self))
        found: dict[str, frozenset[str]] = {}
        for command in ("", *COMMANDS, *names("commands")):
            with pytest.raises(SystemExit, match="0"):
                main([command, "--help"] if command else ["--help"])
            found |= dict(_of(seen["last"], command))
    return found


def _of(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, frozenset[str]]]:
    actions = parser._actions  # noqa: SLF001 (argparse has no other way)
    yield name, frozenset(flag for action in actions for flag in action.option_strings)
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 (as above)
            for verb, each in action.choices.items():
                yield from _of(each, f"{name} {verb}")


def wrong(line: str) -> list[str]:
    """Return what a command line names that does not exist."""
    ours, _, _ = line.partition("|")
    words = [word.strip("()[],.;:'\"\\") for word in ours.split()]
    if words[0] not in flags():
        return [f"headrace {words[0]}"]
    verbs = [name for name in flags() if name.startswith(f"{words[0]} ")]
    chosen = " ".join(words[:2])
    if verbs and len(words) > 1 and re.fullmatch("[a-z-]+", words[1]) and chosen not in verbs:
        return [f"headrace {chosen}"]
    there = flags()[words[0]] | flags().get(chosen, frozenset())
    return [f"headrace {line}: {flag}" for flag in FLAG.findall(ours) if flag not in there]


@cache
def texts(module: Path) -> Sequence[str]:
    """Return the strings of a module that are neither docstrings nor flags that it declares."""
    nodes = list(ast.walk(ast.parse(module.read_text())))
    left_out: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.Expr):
            left_out.add(node.value)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            left_out.update(node.args)
    constants = (n for n in nodes if isinstance(n, ast.Constant) and n not in left_out)
    return [node.value for node in constants if isinstance(node.value, str)]


def modules() -> list[Path]:
    """Return all modules of the product."""
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def test_messages_name_flags_that_there_are() -> None:
    """A flag that a message names is one of some command's; with its command, it is that one's."""
    app = {**dict(_of(audit_parser(), "audit")), **dict(_of(watch_parser(), "watch"))}
    known = frozenset().union(*flags().values(), *app.values())
    named = {
        (path.name, f) for path in modules() for text in texts(path) for f in FLAG.findall(text)
    }
    lines = [line for path in modules() for text in texts(path) for line in QUOTED.findall(text)]

    assert len(named) > 50
    assert [] == sorted(
        (name, flag) for name, flag in named if flag not in known | FOREIGN.get(name, set())
    )
    assert len(lines) > 5
    assert [] == [problem for line in lines for problem in wrong(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_commands_that_there_are(page: Path) -> None:
    """A command line on a page has a command that there is, and flags that it takes."""
    text = page.read_text()
    lines = [*QUOTED.findall(text), *LINE.findall(text)]

    assert lines or page.name != "operations.md"
    assert [] == [problem for line in lines for problem in wrong(line)]


def test_nothing_is_installed_from_an_index() -> None:
    """No message and no page says `pip install headrace`: no index has it."""
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    said = [*(page.read_text() for page in pages), *(t for m in modules() for t in texts(m))]

    assert 2 < sum("headrace-….whl[" in text for text in said)
    assert [] == [t for text in said for t in re.findall(r"install '?headrace(?:\[.*|'|`|$)", text)]
