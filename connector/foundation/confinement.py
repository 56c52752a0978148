"""Confines sinks of statements: they write only below the folders that the worker's file allows.

The sink of a job file is trusted, because its author may write that file.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.connector.foundation.sink_stores import confined_paths
from headrace.plugins import Problem

ROOTS_KEY: Final = "sink.files.roots"


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The folders that the file at *file* allows; relative paths are relative to its folder."""

    file: Path
    state: Path
    roots: Sequence[str]

    def problems(self, config: object) -> list[Problem]:
        """Return a problem for each path of a statement's *config* outside of these folders."""
        found = ((key, self._problem(path)) for key, path in confined_paths(config))
        return [Problem(key, *problem) for key, problem in found if problem]

    def _problem(self, path: str) -> tuple[str, str] | None:
        folder = self.file.absolute().parent
        place = Path(os.path.realpath(folder / path))
        roots = [Path(os.path.realpath(folder / root)) for root in self.roots]
        if not any(place.is_relative_to(root) for root in roots):
            known = ", ".join(map(str, roots)) or "none"
            hint = f"folders for files: {known}; {ROOTS_KEY} in {self.file.name} names them"
            return f"{str(place)[:200]!r} lies outside the folders for files", hint
        state = Path(os.path.realpath(self.state))  # The files beside it have longer names.
        is_state = place.parent == state.parent and place.name.startswith(state.name)
        if is_state:
            return "is the job's own state file", "name another file"
        if place == Path(os.path.realpath(self.file)):
            return "is the job's own file", "name another file"
        return None
