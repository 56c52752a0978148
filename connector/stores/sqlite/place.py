"""Checks the place of a state file, and identifies the file there."""

import os
import shlex
from pathlib import Path
from typing import Final

from headrace.connector.stores import StateFileError, StateLostError
from headrace.connector.stores.sqlite.shape import RESTORE

_FILE_SERVERS: Final = ("9p", "cifs", "coda", "ncpfs", "smb3", "smbfs", "nfs", "nfs4", "afs")
_CLUSTERS: Final = ("beegfs", "ceph", "gfs2", "glusterfs", "lustre", "ocfs2")
_USER_SPACE: Final = ("rclone", "s3fs", "sshfs")
NETWORK_FILE_SYSTEMS: Final = frozenset((*_FILE_SERVERS, *_CLUSTERS, *_USER_SPACE))


def identity_of(place: Path) -> tuple[int, int]:
    """Return a unique identity of the file at *place*. Raises OSError."""
    found = place.stat()
    return found.st_dev, found.st_ino


def network_file_system(path: str, mounts: str) -> str:
    """Return the network file system of *path*, or an empty string.

    *path* is absolute and free of links; *mounts* has the form of `/proc/self/mounts`.
    """
    best, found = "", ""
    for line in mounts.splitlines():
        _, mount, kind, *_ = line.split(" ")
        point = mount.encode().decode("unicode_escape")  # Spaces are written as \040.
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, kind
    return found if found.removeprefix("fuse.") in NETWORK_FILE_SYSTEMS else ""


def remote_file_system(place: Path) -> str:
    """Return the network file system of *place*; empty if it is local, or not known here."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:  # Not Linux: unknown.
        return ""
    return network_file_system(os.path.realpath(place), mounts)


def check_place(place: Path, *, create: bool) -> None:
    """Raise if a state file cannot be at *place*, or cannot be used there.

    Raises:
        StateFileError: the file, its directory or its file system is unsuitable.
        StateLostError: the file was emptied, or its write-ahead log was removed.

    """
    directory = place.absolute().parent
    if not directory.is_dir():
        raise StateFileError(
            "its directory does not exist", place=str(place), hint=f"make {directory}"
        )
    if place.is_dir():
        raise StateFileError("is a directory, expected a file", place=str(place))
    if place.exists() and place.stat().st_size == 0:
        raise StateLostError(
            "the state file is empty: what was in it is gone",
            place=str(place),
            hint=f"{RESTORE}. To start over, remove the file",
        )
    if not create and not place.exists():
        raise StateFileError(
            "the state file does not exist", place=str(place), hint="`headrace run` makes it"
        )
    if not os.access(directory, os.W_OK) or (place.exists() and not os.access(place, os.W_OK)):
        raise StateFileError("is not writable", place=str(place))
    _check_log(place)
    if remote := remote_file_system(place):
        raise StateFileError(
            f"lies on a network file system ({remote}), where SQLite's locks cannot be trusted",
            place=str(place),
            hint="put `state` on a local disk",
        )


def _check_log(place: Path) -> None:
    """Raise if a file's write-ahead log was removed after the process that wrote it died.

    SQLite makes `-wal` before `-shm`, and removes it after: `-shm` never exists alone. The check is
    repeated, since another process may open or close the file meanwhile.
    """
    file = os.path.realpath(place)
    log, index = Path(f"{file}-wal"), Path(f"{file}-shm")
    if log.exists() or not index.exists() or log.exists():
        return
    raise StateLostError(
        f"the state file's write-ahead log, {log}, was removed: the last commits were in it",
        place=str(place),
        hint="put the log back. To continue without it, run `rm "
        f"{shlex.quote(str(index))}` and start again: what was delivered since the last "
        "checkpoint is delivered again, except with exactly.once",
    )
