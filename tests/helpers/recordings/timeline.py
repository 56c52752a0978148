"""What a node did to the files of its commit log, recorded every 50 ms, and repeated here."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from headrace.sources.cassandra.commitlog.segment import parse_name

FINAL = 1 << 62

# Return a segment's bytes with a number of durable ones, of a file of this size.
Content = Callable[[str, int, int], bytes]
# Change an index's text; a recording without segments needs it for forged ones.
IndexText = Callable[[str, str], str]


def as_it_is(_name: str, text: str) -> str:
    """Return the index as it was recorded."""
    return text


class Timeline:
    """Two folders, `cdc_raw` and `commitlog`, in which the events of a recording are repeated."""

    def __init__(self, events: Path, folder: Path, content: Content, text: IndexText) -> None:
        """Make empty folders."""
        lines = map(json.loads, events.read_text().splitlines())
        self._events: list[Mapping[str, Any]] = [line for line in lines if "file" in line]
        self._folder = folder
        self._content = content
        self._text = text
        self._sizes: dict[str, int] = {}
        self.durable: dict[int, int] = {}
        self.listed: set[int] = set()
        for name in ("cdc_raw", "commitlog"):
            (folder / name).mkdir(parents=True)

    def steps(self) -> Iterator[float]:
        """Repeat the events, and yield after each moment."""
        for moment, events in groupby(self._events, key=lambda event: float(event["t"])):
            for event in events:
                self._do(Path(event["file"]), event["now"])
            yield moment

    def _do(self, file: Path, now: Mapping[str, Any] | None) -> None:
        path = self._folder / file
        if now is None:
            path.unlink(missing_ok=True)
        elif "idx" in now:
            self._index(path, self._text(file.name, now["idx"]))
        elif file.parent.name == "commitlog":
            path.touch()
        else:
            self._sizes[file.name] = now["size"]
            self._write(path)

    def _index(self, path: Path, text: str) -> None:
        path.write_text(text)
        log = path.with_name(path.name.replace("_cdc.idx", ".log"))
        segment_id = segment_of(log.name)
        offset = FINAL if "COMPLETED" in text else int(text or 0)
        self.durable[segment_id] = max(self.durable.get(segment_id, 0), offset)
        for other in self.durable.keys() & self.listed:
            if other < segment_id:
                self.durable[other] = FINAL
        self.listed.add(segment_id)
        if log.exists():
            self._write(log)

    def _write(self, path: Path) -> None:
        durable = self.durable.get(segment_of(path.name), 0)
        path.write_bytes(self._content(path.name, durable, self._sizes[path.name]))


def segment_of(name: str) -> int:
    """Return the id in a segment's file name."""
    parsed = parse_name(name)
    assert parsed
    return parsed[1]
