"""Counts what a reader has to follow: `python -m bench.walks` traces four walks through headrace.

An entry is a call of a Python function in another file than that of its caller, which is the
nearest function of headrace: so often a reader turns to another file. A generator is entered once,
however often it continues; comprehensions and calls inside a file are not counted. All modules are
interpreted, so that calls of those that are compiled show, and each walk is traced after everything
was imported.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from importlib.util import find_spec
from typing import Final

PACKAGE: Final = "headrace"


def interpret() -> None:
    """Import modules of headrace from their .py files from now on, not from what was compiled."""
    package = find_spec(PACKAGE)
    ours = tuple(package.submodule_search_locations or ()) if package else ()

    def finder(path: str) -> FileFinder:
        if not path.startswith(ours):
            raise ImportError
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, finder)
    sys.path_importer_cache.clear()


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a walk has more entries than it may have."""
    parser = argparse.ArgumentParser(prog="python -m bench.walks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the entries in their order")
    parser.add_argument("--most", type=int, metavar="N", help="a bound for each walk, not its own")
    parser.add_argument("--walk", metavar="TITLE", help="only this walk")
    given = parser.parse_args(arguments)
    interpret()
    from bench.walked import walked  # noqa: PLC0415 (what it imports is to be interpreted)

    status = 0
    sys.stdout.write(f"{'walk':<34}{'files':>8}{'entries':>9}{'bound':>8}{'goal':>7}\n")
    for walk, entries in walked(given.walk):
        bound = walk.bound if given.most is None else given.most
        files = len({file for file, _ in entries})
        sys.stdout.write(
            f"{walk.title:<34}{files:>8}{len(entries):>9}{bound:>8}{walk.goal or '':>7}\n"
        )
        if given.list:
            sys.stdout.writelines(f"    {file}  {function}\n" for file, function in entries)
        if len(entries) > bound:
            sys.stderr.write(f"alarm: {walk.title}: {len(entries)} entries, {bound} are allowed\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
