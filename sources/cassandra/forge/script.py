"""Scripts of segments: steps in YAML or JSON lines, executed in order.

The steps are described in docs/forge.md.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.forge.damage import Damage, damaged
from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.forge.segments import (
    COMPLETED,
    SEGMENT_ID,
    Forged,
    SegmentWriter,
    write_segment,
)
from headrace.sources.cassandra.forge.statements import VERBS, Statements
from headrace.sources.cassandra.forge.wire import entry
from headrace.sources.cassandra.forge.wrapping import PLAIN, Wrapping, compression, encryption
from headrace.sources.cassandra.schema.tables import Schema

SCRIPT_BYTES_MAX: Final = 64 * 1024 * 1024
_SEGMENT_MEMBERS: Final = frozenset(
    {
        "version",
        "id",
        "compression",
        "options",
        "encryption",
        "sync_entries",
        "sync_bytes",
        "close",
        "index",
        "size",
        "block",
    }
)
_CLOSES: Final = ("clean", "synced", "crash")
# `updates` comes first: a mutation also has a descriptive member `segment`.
_KINDS: Final = ("updates", "segment", "sync", "raw", "entry", "corrupt", "batch", *VERBS)

Step = Mapping[str, Any]  # Any: parsed YAML or JSON.


class _Segment(msgspec.Struct):
    """A segment that is being written, and the damage to apply at its end."""

    options: Step
    writer: SegmentWriter
    damage: list[Damage] = msgspec.field(default_factory=list)
    entries: int = 0


class Forge:
    """Executes the steps of a script; finished segments go into a folder."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        """Set the schema, and the folder, which is created with the first finished segment."""
        self._schema = schema
        self._folder = folder
        self._statements = Statements(schema)
        self._segment: _Segment | None = None
        self._last_id = SEGMENT_ID - 1
        self.written: list[Path] = []

    def run(self, steps: Iterator[tuple[str, Step]]) -> Sequence[Path]:
        """Execute *steps*, each with its place. Return the paths of the segments written.

        Raises:
            ScriptError: a step cannot be written; the error has its place.

        """
        for place, step in steps:
            try:
                self._step(step)
            except ScriptError as error:
                error.place = error.place or place
                raise
            except (TypeError, ValueError, AttributeError, KeyError) as error:
                raise ScriptError(f"a member is of the wrong kind: {error}", place=place) from error
        self._finish()
        return self.written

    def _step(self, step: Step) -> None:
        kind = next((kind for kind in _KINDS if kind in step), None)
        if kind is None:
            raise ScriptError(f"expected a step, found {list(step)}", hint=", ".join(_KINDS))
        if kind == "segment":
            self._finish()
            self._begin(step["segment"] or {})
            return
        segment = self._segment or self._begin({})
        match kind:
            case "sync":
                segment.writer.sync()
            case "corrupt":
                segment.damage.append(Damage.of(step["corrupt"]))
            case "entry":
                segment.writer.add_entry(_hex(step["entry"]))
            case "raw":
                self._add(segment, _hex(step["raw"]))
            case _:
                messaging = MESSAGING[segment.writer.version]
                self._add(segment, encode_mutation(self._document(step), self._schema, messaging))

    def _document(self, step: Step) -> Step:
        if "updates" in step:
            return step
        return self._statements.document(step.get("batch", [step]))

    def _begin(self, options: Step) -> _Segment:
        unknown = options.keys() - _SEGMENT_MEMBERS
        if unknown:
            hint = f"a segment has {', '.join(sorted(_SEGMENT_MEMBERS))}"
            raise ScriptError(f"a segment has no {', '.join(sorted(unknown))}", hint=hint)
        version = options.get("version", 7)
        if version not in MESSAGING:
            raise ScriptError(f"commit log version {version}; there are 7, 8 and 9")
        if options.get("close", "clean") not in _CLOSES:
            raise ScriptError(f"close is one of {', '.join(_CLOSES)}")
        self._last_id = options.get("id", self._last_id + 1)
        writer = SegmentWriter(
            version=version, segment_id=self._last_id, wrapping=_wrapping(options)
        )
        self._segment = _Segment(options, writer)
        return self._segment

    def _add(self, segment: _Segment, mutation: bytes) -> None:
        options, writer = segment.options, segment.writer
        full = len(entry(mutation)) + writer.unsynced > options.get("sync_bytes", 1 << 31)
        if full and writer.unsynced:
            writer.sync()
        writer.add(mutation)
        segment.entries += 1
        if segment.entries % options.get("sync_entries", 1 << 31) == 0:
            writer.sync()

    def _finish(self) -> None:
        segment, self._segment = self._segment, None
        if segment is None:
            return
        options, writer = segment.options, segment.writer
        close = options.get("close", "clean")
        if close != "crash" and writer.unsynced:
            writer.sync()
        if close == "clean":
            writer.sync()  # Closing a segment syncs again, for the unused tail.
        made = writer.forged()
        content = damaged(made, segment.damage)
        content += bytes(max(0, options.get("size", 0) - len(content)))
        if options.get("block"):
            content += bytes(-len(content) % options["block"])
        self.written.append(
            write_segment(
                self._folder,
                content,
                version=writer.version,
                segment_id=writer.segment_id,
                index=_index(options.get("index", "completed"), made, len(content)),
            )
        )


def read_steps(text: str, place: str) -> Iterator[tuple[str, Step]]:
    """Yield the steps of a script, each with its place: JSON lines, or else YAML.

    Raises:
        ScriptError: *text* is neither.

    """
    if text.lstrip().startswith("{"):
        yield from _json_lines(text, place)
        return
    try:
        steps = yaml.safe_load(text) or []
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{place}:{mark.line + 1}:{mark.column + 1}" if mark else place
        raise ScriptError(getattr(error, "problem", None) or "is not YAML", place=where) from error
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"is not usable YAML: {error}", place=place) from error
    if not isinstance(steps, list):
        raise ScriptError("expected a list of steps", place=place)
    for number, step in enumerate(steps, 1):
        yield _checked(step, f"{place}: step {number}")


def _json_lines(text: str, place: str) -> Iterator[tuple[str, Step]]:
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{place}:{number}"
        if line.strip():
            try:
                step = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ScriptError(f"is not JSON: {error}", place=where) from error
            yield _checked(step, where)


def _checked(step: object, place: str) -> tuple[str, Step]:
    if not isinstance(step, Mapping):
        raise ScriptError(f"expected a step, found {step!r}", place=place)
    return place, step


def _wrapping(options: Step) -> Wrapping:
    if "encryption" in options:
        given = options["encryption"]
        iv = _hex(given["iv"]) if "iv" in given else None
        return encryption(_hex(given["key"]), given.get("alias", "headrace:1"), iv)
    if "compression" in options:
        return compression(options["compression"], options.get("options"))
    return PLAIN


def _index(wanted: str, made: Forged, file_bytes: int) -> str | None:
    known: dict[str, str | None] = {
        "completed": f"{made.durable}\n{COMPLETED}",
        "live": str(made.durable),
        "replayed": f"{file_bytes}\n{COMPLETED}",
        "none": None,
    }
    return known.get(wanted, wanted)


def _hex(text: object) -> bytes:
    try:
        return bytes.fromhex(str(text).removeprefix("0x"))
    except ValueError as error:
        raise ScriptError(f"expected hexadecimal digits, found {text!r}") from error
