"""Compiles the few hot modules. Everything else about the package is in setup.cfg.

A compiled module is the same .py file made faster, so a failed compilation is not an
error: the interpreter runs the .py instead. HEADRACE_NATIVE=require makes it an error,
HEADRACE_NATIVE=off skips it.
"""

import configparser
import multiprocessing
import os
import sys
from pathlib import Path

from setuptools import Extension, setup

SETTINGS = configparser.ConfigParser()
SETTINGS.read("setup.cfg", encoding="utf-8")
HOT = SETTINGS["headrace:native"]["modules"].split()
BINDINGS = SETTINGS["headrace:native"]["bindings"].split()
NATIVE = os.environ.get("HEADRACE_NATIVE", "auto")
# A process that is no fork would begin by running this file again.
PROCESSES = (os.cpu_count() or 0) if multiprocessing.get_start_method() == "fork" else 0


def extensions() -> list[Extension]:
    """Return the modules to compile, as HEADRACE_NATIVE asks."""
    if NATIVE == "off":
        return []
    from Cython.Build import cythonize

    # Cython does not see that a module depends on what `from PACKAGE cimport MODULE` names.
    shared = [
        *Path("sources/cassandra/native").glob("*.pxd"),
        *Path("connector").rglob("octets.pxd"),
        Path("connector/rows/kinds.pxd"),
    ]
    changed = max(path.stat().st_mtime for path in shared)
    is_stale = any(made.stat().st_mtime < changed for made in Path("build/cython").rglob("*.c"))
    found = cythonize(
        [
            Extension(
                name,
                [f"src/{name.replace('.', '/')}.{kind}"],
                # Warnings would be about Cython's C. Two fields of an object stored as one are slow
                # to read one by one. Sums are written in the order in which their parts are known.
                extra_compile_args=[
                    *("-O3", "-g0", "-w"),
                    *("-fno-tree-slp-vectorize", "-fno-tree-reassoc"),
                ],
                include_dirs=["src/headrace/sources/cassandra/native/c"],
                depends=[str(header) for header in Path("sources/cassandra/native/c").glob("*.h")],
            )
            for kind, names in (("py", HOT), ("pyx", BINDINGS))
            for name in names
        ],
        nthreads=PROCESSES,
        force=is_stale,
        build_dir="build/cython",
        compiler_directives={
            "annotation_typing": False,  # The .pxd alone decides the C types.
            "auto_pickle": False,
            "boundscheck": False,
            "initializedcheck": False,
            "show_performance_hints": False,
            "wraparound": False,
        },
    )
    for extension in found:  # Set afterwards: cythonize drops it.
        extension.optional = NATIVE != "require"
    return found


# A checkout without symbolic links would otherwise install an empty package.
if not Path("src/headrace/connector").is_dir():
    sys.exit(
        "src/headrace/connector is not a folder: this checkout has no symbolic links.\n"
        "hint: git config core.symlinks true && git checkout -- src/headrace"
    )

setup(ext_modules=extensions())
