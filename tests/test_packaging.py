"""What is installed is what is in the four folders, under one name, within the house's limits."""

import ast
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

from helpers.settings.native_modules import NATIVE, ROOT, bindings, hot_modules, is_compiled

ROOMS = ("connector", "plugins", "sinks", "sources")
SETTINGS = ConfigParser()
SETTINGS.read(ROOT / "setup.cfg", encoding="utf-8")
FUNCTION_LINES_MAX = 70
FOLDER_MODULES_MAX = 16


def sources(*folders: str) -> list[Path]:
    """Return the Python files under *folders*, as paths from the root."""
    found = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    return sorted(file.relative_to(ROOT) for file in found)


def modules() -> list[str]:
    """Return the names of all our modules, whose optional packages may be missing, too."""
    names = [".".join(("headrace", *file.with_suffix("").parts)) for file in sources(*ROOMS)]
    return [name.removesuffix(".__init__") for name in names]


def test_entry_points_load() -> None:
    """Built-ins are found the way a stranger's plugins are."""
    entries = [e for e in distribution("headrace").entry_points if e.dist is not None]

    assert {"headrace.sources", "headrace.sinks", "console_scripts"} <= {e.group for e in entries}
    assert all(entry.load() is not None for entry in entries)


def test_native_is_required() -> None:
    """HEADRACE_NATIVE=require is never satisfied by an interpreted module."""
    modules = (*hot_modules(), *bindings())
    interpreted = [name for name in modules if not is_compiled(name)]

    assert NATIVE != "require" or not interpreted


def test_hot_modules_are_declared() -> None:
    """A module that is compiled has a .pxd, which alone says what is C in it."""
    declared = {file.stem for room in ROOMS for file in (ROOT / room).rglob("*.pxd")}

    assert {name.rpartition(".")[2] for name in hot_modules()} <= declared


@pytest.mark.parametrize("name", hot_modules())
def test_types_are_of_their_function(name: str) -> None:
    """The C types of locals stand above the function that has them, or its numbers are objects."""
    path = Path(*name.split(".")[1:])
    types = _text(path.with_suffix(".pxd"))
    named = defaultdict[str, set[str]](set)
    for node in ast.walk(ast.parse(_text(path.with_suffix(".py")))):
        if isinstance(node, ast.FunctionDef):
            named[node.name] |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    typed = re.findall(r"@cython\.locals\((.*)\)\n(?: *@.*\n)* *cp?def [^(]*?(\w+)\(", types)

    assert {} == {
        function: strays
        for given, function in typed
        if (strays := set(re.findall(r"(\w+)=", given)) - named[function])
    }


def test_hot_modules_are_tested_both_ways() -> None:
    """The test of a module that is compiled is run by the interpreter too; its mark says so."""
    paths = [Path(*name.split(".")[1:]) for name in hot_modules()]
    tests = [ROOT / "tests" / path.parent / f"test_{path.name}.py" for path in paths]
    found = [test for test in tests if test.exists()]

    assert len(found) > 7
    assert [] == [test for test in found if "pytestmark = pytest.mark.hot" not in _text(test)]


@pytest.mark.parametrize("room", ROOMS)
def test_one_copy(room: str) -> None:
    """The rooms are not importable by their bare names, which would double every class."""
    found = find_spec(room)  # The folder of its tests can be found, which has no __init__.py.
    assert found is None or found.loader is None
    assert find_spec(f"headrace.{room}") is not None


def test_functions_are_short() -> None:
    """A function that needs more than 70 lines is two functions."""
    long = {
        f"{file}:{node.lineno} {node.name}": size
        for file in sources(*ROOMS, "tests", "bench")
        for node in _statements(ast.parse(_text(file)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (size := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    }

    assert {} == long


def test_folders_are_small() -> None:
    """A folder of product code or of tests has at most 16 modules."""
    others = ("__init__.py", "conftest.py")
    found = Counter(f.parent for f in sources(*ROOMS, "tests") if f.name not in others)

    assert found[Path("tests")]
    assert {} == {str(folder): n for folder, n in found.items() if n > FOLDER_MODULES_MAX}


def test_packages_have_owners() -> None:
    """Only the rooms that setup.cfg lists import a package that is not ours."""
    owners = {package: rooms.split() for package, rooms in SETTINGS["headrace:owners"].items()}
    strays = [
        f"{file} imports {package}"
        for file in sources(*ROOMS)
        for package in _foreign_imports(file)
        if not any(_is_in(file, room) for room in owners.get(package, []))
    ]

    assert [] == strays


def test_what_is_built_has_its_data(tmp_path: Path) -> None:
    """What is installed has recording, templates, pages and what C needs, beside the modules."""
    built = tmp_path / "built"
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(built)]
    environment = os.environ | {"HEADRACE_NATIVE": "off"}
    subprocess.run(command, check=True, cwd=ROOT, env=environment)  # noqa: S603 (our own program)
    wanted = {
        Path("headrace") / file.relative_to(ROOT)
        for room in ROOMS
        for kind in (
            *("*.pxd", "*.pyi", "*.pyx", "*.h"),
            *("*.tar.xz", "*.txt", "*.html", "static/*"),
        )
        for file in (ROOT / room).rglob(kind)
    }

    assert Path("headrace/connector/demo/5.0-ring.tar.xz") in wanted
    assert [] == [str(file) for file in sorted(wanted) if not (built / file).is_file()]


def test_nothing_needs_cassandra() -> None:
    """Without the Cassandra source every other module works: the framework knows no source."""
    blocked = "headrace.sources.cassandra"
    optional = ("headrace.connector.replay", "headrace.connector.streams", blocked)
    names = [name for name in modules() if not name.startswith(optional)]
    program = (
        f"import importlib, sys; sys.modules[{blocked!r}] = None\n"
        f"for name in {names}: importlib.import_module(name)"
    )
    child = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert (0, "") == (child.returncode, child.stderr)


def test_names_no_outside_place() -> None:
    """No file names what happens to lie beside this checkout, or anybody's home."""
    places = [str(place) for place in (*ROOT.parent.iterdir(), Path.home()) if place.name]
    pattern = re.compile(rf"(?<![\w./<-])(?:{'|'.join(map(re.escape, places))})(?![\w-])")
    kinds = {
        "",
        ".cfg",
        ".in",
        ".md",
        ".pxd",
        ".pyi",
        ".pyx",
        ".h",
        ".py",
        ".toml",
        ".txt",
        ".yaml",
        ".yml",
    }
    named = [
        f"{file}:{number}"
        for file in _project_files()
        if file.suffix in kinds
        for number, line in enumerate(_text(file).splitlines(), start=1)
        if pattern.search(line)
    ]

    assert [] == named


def _project_files() -> Iterator[Path]:
    """Return every file that is neither built nor installed, as a path from the root."""
    left_out = {"build", "dist", "corpora", "results", "data"}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in left_out and name[0] != "."]
        for name in files:
            yield (Path(folder) / name).relative_to(ROOT)


def _text(file: Path) -> str:
    return (ROOT / file).read_text(encoding="utf-8", errors="replace")


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Return all but expressions, which are most of a tree, and have no import or function."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from _statements(child)


def _foreign_imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in _statements(ast.parse(_text(file))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"headrace"}


def _is_in(file: Path, room: str) -> bool:
    parts = room.split(".")
    return file.with_suffix("").parts[: len(parts)] == tuple(parts)
