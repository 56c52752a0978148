"""Plants small random faults in the product, one at a time, and prints which test notices each.

A fault that no test notices shows a test that is missing, or code that is not needed; some change
nothing that anybody could see. Each is planted in a copy of the tree. The tests that mirror its
module run first, then the others of their folder, then those elsewhere that import the module.
What is compiled, is interpreted. A test that fails without the fault, too, notices nothing; such a
fault, and one with which tests do not end, counts neither way. One seed plants the same faults in
the same tree.

python -m tests.faults [--count 60] [--seed 17] [--under sources/cassandra/state] [--seconds 600]
"""

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice, zip_longest
from pathlib import Path
from random import Random
from typing import Final

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = ("connector", "plugins", "sinks", "sources")
SHOWN_CHARS: Final = 70
_PAIRS: Final[tuple[tuple[type[ast.AST], type[ast.AST]], ...]] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
)
_EXCHANGED: Final = dict(_PAIRS) | {other: one for one, other in _PAIRS}
_LEAST_OR_MOST: Final = {"min": "max", "max": "min"}
_LOGGING: Final = {"debug", "info", "warning", "error", "exception", "critical"}
_SKIPPED: Final = (ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)
_Change = tuple[str, ast.expr | ast.stmt, str]  # The kind, what is replaced, and by what.
_NOT_RUN: Final = (
    "annotation",
    "returns",
    "decorator_list",
    "exc",
    "cause",
)  # Messages are in exc.


@dataclass(frozen=True, slots=True)
class Fault:
    """The bytes from `start` to `end` become `new`; they are in `line`, and were `old`."""

    kind: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def plant(self, source: bytes) -> bytes:
        """Return *source* with the fault."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def __str__(self) -> str:
        """Say what was changed, in a line."""
        old, new = (" ".join(text.split())[:SHOWN_CHARS] for text in (self.old, self.new))
        return f"{self.kind}: {old} -> {new}"


def faults_in(source: bytes) -> list[Fault]:
    """Return the faults that can be planted in a module, in order."""
    lines = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    found = []
    for node in _nodes(ast.parse(source)):
        for kind, place, new in (*_in_expression(node), *_in_statement(node)):
            start = lines[place.lineno - 1] + place.col_offset
            end = lines[(place.end_lineno or 0) - 1] + (place.end_col_offset or 0)
            old = source[start:end].decode()
            found.append(Fault(kind, place.lineno, start, end, old, new))
    return found


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs, without strings, messages and log events."""
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in _NOT_RUN and not _is_left_out(child):
                yield from _nodes(child)


def _is_left_out(node: ast.AST) -> bool:
    match node.value if isinstance(node, ast.Expr) else node:
        case ast.Call(ast.Attribute(attr=name)):
            return name in _LOGGING
        case ast.If(ast.Name("TYPE_CHECKING")):
            return True
    return isinstance(node, _SKIPPED)


def _in_expression(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.Compare(left, [op], [right]):
            other = ast.Compare(left, [_EXCHANGED[type(op)]()], [right])  # type: ignore[list-item] # an operator
            yield "comparison", node, f"({ast.unparse(other)})"
        case ast.BoolOp(op, values):
            exchanged = ast.BoolOp(_EXCHANGED[type(op)](), values)  # type: ignore[arg-type] # an operator
            yield "and, or", node, f"({ast.unparse(exchanged)})"
        case ast.Constant(int(number)) if not isinstance(number, bool):
            yield "constant", node, str(number + 1)
            yield "constant", node, f"({number - 1})"
        case ast.Call(ast.Name(str(name)) as called) if name in _LEAST_OR_MOST:
            yield "min, max", called, _LEAST_OR_MOST[name]
        case ast.Call(_, [first, second, *_]) if _are_exchangeable(first, second):
            args = [second, first, *node.args[2:]]
            yield "arguments", node, ast.unparse(ast.Call(node.func, args, node.keywords))


def _in_statement(node: ast.AST) -> Iterator[_Change]:
    match node:
        case ast.If(test) | ast.IfExp(test) | ast.comprehension(ifs=[test]):
            yield "negation", test, f"(not ({ast.unparse(test)}))"
        case ast.Return(ast.Constant(bool(answer))):
            yield "return", node, f"return {not answer}"
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return", node, "return None"
        case ast.AugAssign() | ast.Delete() | ast.Raise() | ast.Expr(ast.Call() | ast.Await()):
            yield "removal", node, "pass"
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield "removal", node, "pass"


def _are_exchangeable(first: ast.expr, second: ast.expr) -> bool:
    for each in (first, second):
        match each:
            case ast.Starred() | ast.JoinedStr() | ast.Constant(str()):
                return False
    return ast.dump(first) != ast.dump(second)


def chosen(under: str, count: int, dice: Random) -> list[tuple[Path, Fault]]:
    """Return *count* faults in the modules below a folder, or in one: of each kind equally many."""
    by_kind: dict[str, list[tuple[Path, Fault]]] = {}
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT)
            if str(name).startswith(under) and not str(name).startswith("plugins/testing"):
                for fault in faults_in(path.read_bytes()):
                    by_kind.setdefault(fault.kind, []).append((name, fault))
    for found in by_kind.values():
        dice.shuffle(found)
    in_turn = chain.from_iterable(zip_longest(*by_kind.values()))
    return list(islice(filter(None, in_turn), count))


def stages_of(module: Path) -> list[list[str]]:
    """Return the tests of a module: that mirror it, of the same folder, that import it."""
    folder = Path("tests") / module.parent
    there = sorted(str(p.relative_to(ROOT)) for p in (ROOT / folder).glob("test_*.py"))
    mirrored = [name for name in there if Path(name).name == f"test_{module.name}"]
    dotted = f"headrace.{'.'.join(module.with_suffix('').parts)}"
    package, _, name = dotted.rpartition(".")
    imports = re.compile(rf"{re.escape(dotted)}\b|from {re.escape(package)} import .*\b{name}\b")
    importing = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if imports.search(path.read_text("utf-8"))
    ]
    others = [name for name in there if name not in mirrored]
    elsewhere = [name for name in importing if name not in there]
    return [each for each in (mirrored, others, elsewhere) if each]


class Tree:
    """A copy of the project in which tests run."""

    def __init__(self, folder: Path, seconds: int) -> None:
        """Copy what git knows or would add, and machine code; tests may run so many *seconds*."""
        self._folder = folder
        self._seconds = seconds
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        named = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603 (our own words)
        compiled = [str(p.relative_to(ROOT)) for room in ROOMS for p in (ROOT / room).rglob("*.so")]
        for name in [*filter(None, named.stdout.split("\0")), *compiled]:
            if (ROOT / name).exists():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)

    def notice(self, module: Path, fault: Fault) -> str:
        """Plant a fault, and return how it was noticed; nothing if it was not."""
        path = self._folder / module
        source = path.read_bytes()
        interpreted, noticed = path.with_suffix(".pxd").exists(), ""
        try:
            path.write_bytes(fault.plant(source))
            for tests in stages_of(module):
                if noticed := self._failed(tests, interpreted=interpreted):
                    break
        finally:
            path.write_bytes(source)
        if noticed.startswith("tests/") and self._failed([noticed], interpreted=interpreted):
            return f"? {noticed} fails without the fault, too"
        return noticed

    def _failed(self, tests: Sequence[str], *, interpreted: bool) -> str:
        """Run tests; return the first that fails, or nothing."""
        marks = "not real and not long" if interpreted else "not real"
        options = ["-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-m", marks]
        env = os.environ | {"PYTHONPATH": str(self._folder / "src"), "PYTHONHASHSEED": "0"}
        env["HEADRACE_NATIVE"] = "off" if interpreted else "auto"
        with subprocess.Popen(  # noqa: S603 (our own words)
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self._folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as child:
            try:
                output, _ = child.communicate(timeout=self._seconds)
            except subprocess.TimeoutExpired:
                return f"? no end within {self._seconds} s"
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
        if child.returncode in (0, 5):  # 5: no test was chosen.
            return ""
        found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.MULTILINE)
        return found[1] if found else f"pytest ended with {child.returncode}"


def main() -> None:
    """Plant faults as the options say."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=Random().randrange(1_000_000))  # noqa: S311 (a test's dice)
    parser.add_argument("--under", default="", help="a folder or module of the product")
    parser.add_argument("--seconds", type=int, default=600, help="for the tests of one fault")
    given = parser.parse_args()
    print(f"seed {given.seed}")  # noqa: T201 (its output)
    reported: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder), given.seconds)
        for module, fault in chosen(given.under, given.count, Random(given.seed)):  # noqa: S311 (a test's dice)
            noticed = tree.notice(module, fault)
            reported["unknown" if noticed[:1] == "?" else "noticed" if noticed else "survived"] += 1
            print(f"{module}:{fault.line}: {fault}: {noticed or 'SURVIVED'}", flush=True)  # noqa: T201 (its output)
    share = reported["noticed"] / max(1, reported["noticed"] + reported["survived"])
    print(f"seed {given.seed}: {dict(reported)}, noticed: {share:.0%}")  # noqa: T201 (its output)


if __name__ == "__main__":
    main()
