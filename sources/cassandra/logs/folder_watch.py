"""Detects changes of folders since they were listed, by inotify where it exists.

A listing usually costs more than the few changes it finds. Events only save listings: from time to
time a folder is listed without one. If that finds a change without an event, as on a network file
system, the folder is listed each time. For one thread.
"""

import ctypes
import os
import struct
import weakref
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Final

CHECKED_MS: Final = 1_000  # The longest time after a listing until the next one.
MISSES_MAX: Final = 1  # Changes that a listing may see before their events arrive.
_READ_BYTES: Final = 16 * 1024
_HEAD: Final = struct.Struct("iIII")
_EVENT_BYTES_MAX: Final = _HEAD.size + 256  # With the longest name.
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _ONLYDIR = 0x400, 0x800, 0x0100_0000
NAMES: Final = _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_WRITTEN: Final = _MODIFY | _CLOSE_WRITE
CONTENT: Final = NAMES | _ATTRIB | _WRITTEN
_IGNORED: Final = 0x8000  # The kernel ended the watch.
_ENDED: Final = _IGNORED | _DELETE_SELF | _MOVE_SELF  # From now on, the path may lead elsewhere.


@cache
def _libc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "inotify_init1") else None


class Inotify:
    """Events of any number of folders; none where inotify is missing or its limit is reached."""

    def __init__(self) -> None:
        """Start without a descriptor; the first watched folder opens it."""
        self._descriptor: int | None = None
        # Closes it even without a call to `close`: each user has a limited number of instances.
        self._closing: weakref.finalize[..., Inotify] | None = None
        self._watched: dict[int, list[weakref.ref[FolderWatch]]] = {}
        self.is_held = False

    @property
    def descriptor(self) -> int | None:
        """The descriptor that is readable when events arrive; None while no folder is watched."""
        return self._descriptor

    def watch(self, path: Path, what: int, by: "FolderWatch") -> int | None:
        """Report events *what* of *path* to *by*. Return the watch's id; None if not watched."""
        libc = _libc()
        if libc is None:
            return None
        if self._descriptor is None:
            opened = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            if opened < 0:
                return None
            self._descriptor = opened
            self._closing = weakref.finalize(self, os.close, opened)
        known_by = int(libc.inotify_add_watch(self._descriptor, os.fsencode(path), what))
        if known_by < 0:
            return None
        known = self._watched.get(known_by, [])
        self._watched[known_by] = [r for r in known if r() not in {None, by}] + [weakref.ref(by)]
        return known_by

    def drain(self) -> None:
        """Read the events that have arrived and pass them to their watchers."""
        while self._descriptor is not None:
            try:
                events = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            self._take(events)
            if len(events) + _EVENT_BYTES_MAX < _READ_BYTES:  # There was room for one more event.
                return

    def _take(self, events: bytes) -> None:
        at = 0
        found: dict[tuple[int, bytes], int] = {}  # A sync causes several events of one file.
        while at < len(events):
            known_by, mask, _, length = _HEAD.unpack_from(events, at)
            at += _HEAD.size + length
            named = known_by, b"" if mask & ~_WRITTEN else events[at - length : at]
            found[named] = found.get(named, 0) | mask
        for (known_by, name), mask in found.items():
            if known_by < 0:  # The event queue overflowed; some are lost.
                reported = [each for watching in self._watched.values() for each in watching]
            else:
                reported = self._watched.get(known_by, [])
            text = os.fsdecode(name.rstrip(b"\0")) if name else ""
            for each in [watch for ref in reported if (watch := ref()) is not None]:
                if text:
                    each.tell_written(known_by, text)
                else:
                    each.tell(known_by if mask & _ENDED else None)
            if mask & _ENDED:
                self._leave(known_by)

    def hold(self) -> None:
        """Read the events that have arrived, and no more until `go_on`: folders are checked now."""
        self.drain()
        self.is_held = True

    def go_on(self) -> None:
        """Read events again whenever a folder is checked."""
        self.is_held = False

    def _leave(self, known_by: int) -> None:
        self._watched.pop(known_by, None)
        libc = _libc()
        if libc is not None:  # It fails if the kernel has ended the watch.
            libc.inotify_rm_watch(self._descriptor, known_by)

    def close(self) -> None:
        """Stop watching until a folder is watched again. Safe to call twice."""
        watched, self._watched = self._watched, {}
        for known_by, watching in watched.items():
            for each in [watch for ref in watching if (watch := ref()) is not None]:
                each.tell(known_by)
        if self._closing is not None and self._closing.detach():
            # Closing waits for all processors in the kernel, about 10 ms.
            Thread(target=os.close, args=(self._descriptor,), daemon=True).start()
        self._descriptor = self._closing = None


class FolderWatch:
    """Reports whether the folders that one reader lists are unchanged."""

    def __init__(self, inotify: Inotify, now_ms: Callable[[], int]) -> None:
        """Watch no folder yet."""
        self._inotify = inotify
        self._now_ms = now_ms
        self._folders: dict[Path, int] = {}
        self._first: int | None = None  # The watch id of the first folder.
        self._is_reported = True  # An event other than a write has arrived.
        self._written: set[str] = set()  # Files of the first folder that were written.
        self.is_whole = False
        """Whether every change causes an event."""
        self._was_reported = True  # The value of `_is_reported` before the listing.
        self._misses = 0
        self._check_ms = 0

    def tell(self, ended: int | None) -> None:
        """Note an event; *ended* is the id of a folder that is no longer watched."""
        self._is_reported = True
        if ended is not None:
            self._folders = {path: by for path, by in self._folders.items() if by != ended}

    def tell_written(self, folder: int, name: str) -> None:
        """Note that a file was written and nothing else in its folder changed."""
        if folder == self._first:
            self._written.add(name)
        else:
            self._is_reported = True

    def is_still(self) -> bool:
        """Return whether a new listing would equal the last one."""
        return self._is_as_listed() and not self._written

    def take_written(self) -> Collection[str] | None:
        """Return the files of the first folder that were written, if nothing else changed.

        Returns None if other changes are possible or a check is due. The files returned count as
        seen.
        """
        if not self._is_as_listed():
            return None
        written, self._written = self._written, set()
        return written

    def _is_as_listed(self) -> bool:
        if not self.is_whole:
            return False
        if not self._inotify.is_held:
            self._inotify.drain()
        return not self._is_reported and self._now_ms() < self._check_ms

    def begin(self, folders: Mapping[Path, int]) -> None:
        """Watch the names or the content of *folders*, which the caller lists next."""
        if self._misses > MISSES_MAX:
            return
        for path, what in folders.items():
            if path not in self._folders:
                known_by = self._inotify.watch(path, what, self)
                if known_by is not None:
                    self._folders[path] = known_by
        self._inotify.drain()
        self._was_reported, self._is_reported = self._is_reported or bool(self._written), False
        self._written.clear()
        self._first = self._folders.get(next(iter(folders)))
        self.is_whole = len(self._folders) == len(folders)

    def end(self, *, is_same: bool) -> None:
        """Note that the folders were listed; *is_same*: without a change."""
        if not self.is_whole:
            return
        self._check_ms = self._now_ms() + CHECKED_MS
        if not is_same and not self._was_reported:
            self._inotify.drain()
            self._misses += not (self._is_reported or self._written)
            self.is_whole = self._misses <= MISSES_MAX
