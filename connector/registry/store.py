"""Subjects, their versions, and schemas under global ids, in SQLite. Belongs to one thread.

A schema is identified by its parsed JSON, so white space and the order of keys do not matter. An id
belongs to its schema permanently, even if all subjects have deleted it, because messages may still
contain the id.
"""

import contextlib
import hashlib
import json
import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import fastavro
import msgspec
from fastavro.schema import SchemaParseException, UnknownType

from headrace.connector.registry.compatibility import LEVELS, incompatibilities
from headrace.connector.registry.errors import Code, RegistryError
from headrace.connector.registry.validity import faults
from headrace.connector.stores import StateFileError
from headrace.connector.stores.sqlite.file import is_busy, locked

TEXT_BYTES_MAX: Final = 1024 * 1024
NUMBER_DIGITS_MAX: Final = 18  # Digits of an id or version; SQLite's numbers have at least as many.
_IMPORT: Final = "IMPORT"
MODES: Final = ("READWRITE", "READONLY", _IMPORT)
DEFAULT_LEVEL: Final = "BACKWARD"
_GLOBAL: Final = ""  # The subject whose level and mode are the default.
_BUSY_SECONDS: Final = 5
_MISFITS: Final = (
    SchemaParseException,
    UnknownType,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,
)
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS schemas (
    id INTEGER PRIMARY KEY AUTOINCREMENT, identity TEXT NOT NULL UNIQUE, guid TEXT NOT NULL,
    text TEXT NOT NULL, refs TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS versions (
    subject TEXT NOT NULL, version INTEGER NOT NULL, id INTEGER NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (subject, version)
) STRICT;
CREATE TABLE IF NOT EXISTS settings (
    subject TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (subject, name)
) STRICT;
"""

Json = dict[str, Any]  # Any: any JSON value.


class Reference(msgspec.Struct, frozen=True):
    """Another subject's schema that a schema uses by name."""

    name: str
    subject: str
    version: int


# What a subject is said not to have, by the name of a setting.
_UNSET: Final = {
    "level": (Code.LEVEL_UNSET, "compatibility configured"),
    "mode": (Code.MODE_UNSET, "mode"),
}


class Registered(msgspec.Struct, frozen=True):
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    guid: str
    text: str
    references: tuple[Reference, ...]

    def is_it(self, schema_id: int | None, version: int | None) -> bool:
        """Return whether it has this id and this number; None matches any."""
        return schema_id in (None, self.schema_id) and version in (None, self.version)


def identity_of(text: str, references: Sequence[Reference]) -> str:
    """Return an identity that equal schemas share; the order of fields and symbols matters."""
    refs = [[r.name, r.subject, r.version] for r in references]
    return json.dumps([json.loads(text), refs], sort_keys=True, separators=(",", ":"))


class RegistryStore:
    """See the module."""

    def __init__(self, path: Path) -> None:
        """Open or make the file at *path*. Raises StateFileError."""
        try:
            self._connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.executescript(_TABLES)
            except sqlite3.Error:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            if is_busy(error):
                raise locked(str(path), _BUSY_SECONDS) from error
            raise StateFileError(
                f"cannot be used for a registry: {error}",
                place=str(path),
                hint="give a path of its own, on a local disk",
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # Schemas.

    def register(
        self,
        subject: str,
        text: str,
        references: Sequence[Reference],
        *,
        schema_id: int | None = None,
        version: int | None = None,
    ) -> Registered:
        """Return the version that has this schema; make it if the schema is new to the subject.

        In the mode IMPORT it gets *schema_id*, and the number *version* if one is given, at any
        level; another schema that had that number in the subject loses it.

        Raises:
            RegistryError: the schema is invalid or violates the level, the id belongs to another
                schema, or the subject's mode does not permit it.

        """
        with self._transaction():
            parsed = self._parsed(text, references)
            found = self._find(subject, text, references)
            if found is not None and found.is_it(schema_id, version):
                return found
            _check(parsed)
            mode = self.mode(subject)
            _check_mode(subject, mode, schema_id)
            numbers = [v.version for v in self._versions(subject, deleted=True)]
            number = 1 + max(numbers, default=0)  # Numbers are not reused automatically.
            if mode == _IMPORT:
                number = version or number
                self._check_free(subject, number)
            else:
                self._check_follows(subject, parsed)
                if version not in (None, number):
                    raise RegistryError(
                        Code.SCHEMA_INVALID,
                        f"The next version of subject {subject} is {number}, not {version}",
                    )
            self._connection.execute(
                "INSERT OR REPLACE INTO versions (subject, version, id) VALUES (?, ?, ?)",
                (subject, number, self._id_of(text, references, schema_id)),
            )
        return self.version(subject, str(number))

    def lookup(
        self, subject: str, text: str, references: Sequence[Reference], *, deleted: bool = False
    ) -> Registered:
        """Return the version of *subject* that has this schema.

        Raises:
            RegistryError: the subject does not exist, or does not have the schema.

        """
        self._parsed(text, references)
        self.versions(subject, deleted=deleted)
        found = self._find(subject, text, references, deleted=deleted)
        if found is None:
            raise RegistryError(Code.SCHEMA_UNKNOWN, "Schema not found")
        return found

    def schema(self, schema_id: int) -> Registered:
        """Return a schema by its id; subject and version are those of one of its users, if any."""
        row = self._row("SELECT guid, text, refs FROM schemas WHERE id = ?", schema_id)
        if row is None:
            raise RegistryError(Code.SCHEMA_UNKNOWN, f"Schema {schema_id} not found")
        return Registered("", 0, schema_id, row[0], row[1], _references(row[2]))

    def schema_of_guid(self, guid: str) -> Registered:
        """Return a schema by its guid."""
        row = self._row("SELECT id FROM schemas WHERE guid = ? ORDER BY id", guid)
        if row is None:
            raise RegistryError(Code.SCHEMA_UNKNOWN, f"Schema {guid} not found")
        return self.schema(row[0])

    def uses(self, schema_id: int) -> Sequence[tuple[str, int]]:
        """Return subjects and versions that have the schema."""
        self.schema(schema_id)
        rows = self._connection.execute(
            "SELECT subject, version FROM versions WHERE id = ? AND NOT deleted ORDER BY 1, 2",
            (schema_id,),
        )
        return rows.fetchall()

    # Subjects.

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> Sequence[str]:
        """Return the subjects whose names begin with *prefix*."""
        rows = self._connection.execute(
            "SELECT DISTINCT subject FROM versions WHERE deleted <= ? ORDER BY subject",
            (deleted,),
        )
        return [subject for (subject,) in rows if subject.startswith(prefix)]

    def versions(self, subject: str, *, deleted: bool = False) -> Sequence[int]:
        """Return the versions of *subject*. Raises RegistryError."""
        found = [v.version for v in self._versions(subject, deleted=deleted)]
        if not found:
            raise RegistryError(Code.SUBJECT_UNKNOWN, f"Subject '{subject}' not found.")
        return found

    def version(self, subject: str, number: str, *, deleted: bool = False) -> Registered:
        """Return a version by its number, `latest`, or `-1`, which means the same.

        Raises:
            RegistryError: the subject or version does not exist, or *number* is not a number.

        """
        wanted = _number(number)
        self.versions(subject, deleted=deleted)
        found = self._versions(subject, deleted=deleted)
        if wanted is None:
            return found[-1]
        for each in found:
            if each.version == wanted:
                return each
        raise RegistryError(Code.VERSION_UNKNOWN, f"Version {wanted} not found.")

    def referenced_by(self, subject: str, number: str) -> Sequence[int]:
        """Return the ids of the schemas that refer to a version."""
        version = self.version(subject, number)
        rows = self._connection.execute(
            "SELECT DISTINCT s.id, s.refs FROM schemas s JOIN versions v ON v.id = s.id "
            "WHERE NOT v.deleted AND s.refs != '[]' ORDER BY s.id"
        )
        pair = (subject, version.version)
        return [
            schema_id
            for schema_id, refs in rows
            if pair in {(r.subject, r.version) for r in _references(refs)}
        ]

    def delete_subject(self, subject: str, *, permanent: bool) -> Sequence[int]:
        """Delete all versions, permanently only after they were deleted; return their numbers."""
        with self._transaction():
            everything = [v.version for v in self._versions(subject, deleted=True)]
            live = [v.version for v in self._versions(subject)]
            if not everything:
                raise RegistryError(Code.SUBJECT_UNKNOWN, f"Subject '{subject}' not found.")
            if permanent and live:
                raise RegistryError(
                    Code.SUBJECT_NOT_DELETED,
                    f"Subject '{subject}' was not deleted first before being permanently deleted",
                )
            if not permanent and not live:
                raise RegistryError(
                    Code.SUBJECT_DELETED,
                    f"Subject '{subject}' was soft deleted. Set permanent=true to delete "
                    "permanently",
                )
            for number in everything if permanent else live:
                self._remove(subject, number, permanent=permanent)
        return everything if permanent else live

    def delete_version(self, subject: str, number: str, *, permanent: bool) -> int:
        """Delete one version, permanently only after it was deleted; return its number."""
        with self._transaction():
            version = self.version(subject, number, deleted=True).version
            live = version in [v.version for v in self._versions(subject)]
            if permanent and live:
                raise RegistryError(
                    Code.VERSION_NOT_DELETED,
                    f"Subject '{subject}' Version {version} was not deleted first before being "
                    "permanently deleted",
                )
            if not permanent and not live:
                raise RegistryError(
                    Code.VERSION_DELETED,
                    f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true "
                    "to delete permanently",
                )
            self._remove(subject, version, permanent=permanent)
        return version

    # Compatibility levels and modes.

    def compatible(
        self, subject: str, number: str | None, text: str, references: Sequence[Reference]
    ) -> Sequence[str]:
        """Return why the schema must not follow version *number*, or all of the subject's."""
        parsed = self._parsed(text, references)
        _check(parsed)
        if not self._versions(subject):
            return ()
        if number is None:
            return self._problems(subject, parsed, self._versions(subject))
        return self._problems(subject, parsed, [self.version(subject, number)])

    def level(self, subject: str = _GLOBAL, *, own: bool = False) -> str:
        """Return a subject's level or, unless *own*, its default.

        Raises:
            RegistryError: *own*, and the subject has no level.

        """
        return self._setting(subject, "level", own=own) or DEFAULT_LEVEL

    def set_level(self, level: str, subject: str = _GLOBAL) -> None:
        """Set a level. Raises RegistryError."""
        if level not in LEVELS:
            expected = ", ".join(LEVELS)
            raise RegistryError(
                Code.LEVEL_INVALID, f"Invalid compatibility level. Valid values are {expected}"
            )
        self._set(subject, "level", level)

    def unset_level(self, subject: str = _GLOBAL) -> str:
        """Remove a level and return it."""
        level = self.level(subject, own=True)
        self._unset(subject, "level")
        return level

    def mode(self, subject: str = _GLOBAL, *, own: bool = False) -> str:
        """Return a subject's mode, or the one that counts for it unless *own*; as `level`."""
        return self._setting(subject, "mode", own=own) or MODES[0]

    def set_mode(self, mode: str, subject: str = _GLOBAL, *, force: bool = False) -> None:
        """Set a mode.

        Raises:
            RegistryError: the mode does not exist; or it is IMPORT, schemas exist already, and
                *force* is false.

        """
        if mode not in MODES:
            raise RegistryError(
                Code.MODE_INVALID, f"Invalid mode. Valid values are {', '.join(MODES)}"
            )
        if mode == _IMPORT != self.mode(subject) and not force:
            there = self.subjects() if subject == _GLOBAL else self._versions(subject)
            if there:
                where = f"subject {subject}" if subject else "the registry"
                raise RegistryError(
                    Code.NOT_PERMITTED,
                    f"There are schemas in {where}: set the mode IMPORT with force=true, or before",
                )
        self._set(subject, "mode", mode)

    def unset_mode(self, subject: str = _GLOBAL) -> str:
        """Remove a mode and return it."""
        mode = self.mode(subject, own=True)
        self._unset(subject, "mode")
        return mode

    # Within.

    def _versions(self, subject: str, *, deleted: bool = False) -> list[Registered]:
        rows = self._connection.execute(
            "SELECT v.version, s.id, s.guid, s.text, s.refs FROM versions v JOIN schemas s "
            "ON s.id = v.id WHERE v.subject = ? AND v.deleted <= ? ORDER BY v.version",
            (subject, deleted),
        )
        return [
            Registered(subject, number, schema_id, guid, text, _references(refs))
            for number, schema_id, guid, text, refs in rows
        ]

    def _find(
        self, subject: str, text: str, references: Sequence[Reference], *, deleted: bool = False
    ) -> Registered | None:
        identity = identity_of(text, references)
        row = self._row("SELECT id FROM schemas WHERE identity = ?", identity)
        found = self._versions(subject, deleted=deleted)
        return next((v for v in reversed(found) if row and v.schema_id == row[0]), None)

    def _check_follows(self, subject: str, parsed: Any) -> None:  # noqa: ANN401 (Avro's)
        problems = self._problems(subject, parsed, self._versions(subject))
        if problems:
            level = self.level(subject)
            raise RegistryError(
                Code.INCOMPATIBLE,
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}", compatibility level {level}: {"; ".join(problems)}',
            )

    def _check_free(self, subject: str, number: int) -> None:
        """Raise if other schemas refer to the version with this number."""
        live = [v.version for v in self._versions(subject)]
        if number in live and self.referenced_by(subject, str(number)):
            raise RegistryError(
                Code.REFERENCED, f"One or more references exist to {subject} {number}"
            )

    def _id_of(self, text: str, references: Sequence[Reference], wanted: int | None) -> int:
        identity = identity_of(text, references)
        row = self._row("SELECT id FROM schemas WHERE identity = ?", identity)
        if wanted is not None and wanted != (row and row[0]):
            if row is not None:
                message = f"The schema has the id {row[0]} already; it cannot have {wanted}, too"
                raise RegistryError(Code.NOT_PERMITTED, message)
            if self._row("SELECT id FROM schemas WHERE id = ?", wanted):
                raise RegistryError(Code.NOT_PERMITTED, f"The id {wanted} is another schema's")
        if row is None:
            digest = hashlib.md5(identity.encode(), usedforsecurity=False).digest()
            refs = json.dumps([[r.name, r.subject, r.version] for r in references])
            made = self._connection.execute(
                "INSERT INTO schemas (id, identity, guid, text, refs) VALUES (?, ?, ?, ?, ?)",
                (wanted, identity, str(uuid.UUID(bytes=digest)), text, refs),
            )
            return int(made.lastrowid or 0)
        return int(row[0])

    def _parsed(self, text: str, references: Sequence[Reference]) -> Any:  # noqa: ANN401 (Avro's)
        """Return the schema with full names and its references resolved."""
        if len(text) > TEXT_BYTES_MAX:
            raise RegistryError(Code.TOO_LARGE, f"Schema has more than {TEXT_BYTES_MAX} characters")
        named: dict[str, Json] = {}
        for reference in references:
            other = self.version(reference.subject, str(reference.version))
            self._take_names(self._parsed(other.text, other.references), named)
        try:
            text.encode()  # SQLite stores UTF-8, which cannot encode lone surrogates.
            schema = json.loads(text)
            parsed = fastavro.parse_schema(schema, named)
            resolved = fastavro.schema.expand_schema(parsed) if named else parsed
        except _MISFITS as error:
            message = f"Input schema is an invalid Avro schema: {type(error).__name__}"
            raise RegistryError(Code.SCHEMA_INVALID, message) from error
        return resolved

    def _take_names(self, parsed: Any, named: dict[str, Json]) -> None:  # noqa: ANN401 (Avro's)
        if isinstance(parsed, dict):
            named.update(parsed.get("__named_schemas", {}))

    def _problems(
        self,
        subject: str,
        parsed: Any,  # noqa: ANN401 (Avro's)
        earlier: Sequence[Registered],
    ) -> Sequence[str]:
        others = [self._parsed(each.text, each.references) for each in earlier]
        return incompatibilities(self.level(subject), parsed, others)

    def _remove(self, subject: str, number: int, *, permanent: bool) -> None:
        place = (subject, number)
        if permanent:
            self._connection.execute(
                "DELETE FROM versions WHERE subject = ? AND version = ?", place
            )
        elif self.referenced_by(subject, str(number)):
            raise RegistryError(
                Code.REFERENCED, f"One or more references exist to {subject} {number}"
            )
        else:
            self._connection.execute(
                "UPDATE versions SET deleted = 1 WHERE subject = ? AND version = ?", place
            )

    def _setting(self, subject: str, name: str, *, own: bool) -> str | None:
        query = "SELECT value FROM settings WHERE subject = ? AND name = ?"
        for place in (subject,) if own else (subject, _GLOBAL):
            row = self._row(query, place, name)
            if row is not None:
                return str(row[0])
        if own and subject != _GLOBAL:
            code, what = _UNSET[name]
            raise RegistryError(code, f"Subject '{subject}' does not have subject-level {what}")
        return None

    def _set(self, subject: str, name: str, value: str) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", (subject, name, value)
        )

    def _unset(self, subject: str, name: str) -> None:
        self._connection.execute(
            "DELETE FROM settings WHERE subject = ? AND name = ?", (subject, name)
        )

    def _row(self, query: str, *values: object) -> Any:  # noqa: ANN401 (SQLite's rows)
        return self._connection.execute(query, values).fetchone()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise


def _check(parsed: Any) -> None:  # noqa: ANN401 (Avro's)
    """Raise if a new schema is faulty; faulty ones that are stored stay readable."""
    fault = next(faults(parsed), None)
    if fault is not None:
        raise RegistryError(Code.SCHEMA_INVALID, f"Input schema is an invalid Avro schema: {fault}")


def _check_mode(subject: str, mode: str, schema_id: int | None) -> None:
    """Raise unless the mode permits the request: only IMPORT takes ids, and requires them."""
    if mode == "READONLY":
        raise RegistryError(Code.NOT_PERMITTED, f"Subject {subject} is in read-only mode")
    if (mode == _IMPORT) is (schema_id is None):
        said = "in" if mode == _IMPORT else "not in"
        rule = "where schemas are registered with an id, and without one elsewhere"
        raise RegistryError(
            Code.NOT_PERMITTED, f"Subject {subject} is {said} the mode IMPORT, {rule}"
        )


def _references(text: str) -> tuple[Reference, ...]:
    return tuple(Reference(*each) for each in json.loads(text))


def _number(text: str) -> int | None:
    """Return a version's number, or None for the latest."""
    if text in ("latest", "-1"):
        return None
    digits = text if text.isascii() and text.isdigit() else ""
    if not 0 < len(digits) <= NUMBER_DIGITS_MAX or not 0 < int(digits) < 1 << 31:
        hint = 'Allowed values are between [1, 2^31-1] and the string "latest"'
        raise RegistryError(
            Code.VERSION_INVALID,
            f"The specified version '{text}' is not a valid version id. {hint}",
        )
    return int(text)
