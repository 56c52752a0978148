"""The keys of encrypted segments: from a key store, or one raw key."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.plugins import Problem, option
from headrace.sources.cassandra.errors import (
    KeySizeError,
    KeyStoreError,
    NoKeyError,
    SegmentKeyError,
)
from headrace.sources.cassandra.keystore.ciphers import KEY_SIZES, SegmentKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.sources.cassandra.keystore.jceks import SealedKey
    from headrace.sources.cassandra.keystore.pkcs12 import ShroudedKey

STORE_BYTES_MAX: Final = 16 * 1024 * 1024

_JKS_MAGIC: Final = bytes.fromhex("feedfeed")
_SEQUENCE: Final = b"\x30"
_OPTIONS: Final = "keystore and keystore_password, or raw_key"


@dataclass(frozen=True, kw_only=True)  # Without slots: it is one of several base classes.
class KeyOptions:
    """The options for the keys of encrypted segments."""

    keystore: str | None = option(
        "A copy of the nodes' key store (JCEKS or PKCS12), for encrypted segments.", default=None
    )
    keystore_password: str | None = option(
        "The password of the key store.", default=None, secret=True
    )
    key_password: str | None = option(
        "The password of its keys; default: keystore_password.", default=None, secret=True
    )
    raw_key: str | None = option(
        "Instead of a key store: the AES key of all segments, in hexadecimal digits.",
        default=None,
        secret=True,
    )

    def key_problems(self) -> list[Problem]:
        """Return the missing options, and those without effect."""
        found = []
        if self.keystore is not None and self.keystore_password is None:
            found.append(Problem("keystore_password", "is required with keystore"))
        if self.keystore is None:
            found += [
                Problem(key, "is given without keystore")
                for key, value in (
                    ("keystore_password", self.keystore_password),
                    ("key_password", self.key_password),
                )
                if value is not None
            ]
        if self.keystore is not None and self.raw_key is not None:
            found.append(Problem("raw_key", "is given, and a keystore too", "give one of them"))
        return found


class Keys:
    """The available keys; each is decrypted when a segment first names it, and then kept."""

    def __init__(self, options: KeyOptions) -> None:
        """Read the key store, if one is configured. Blocks briefly.

        Raises:
            SegmentKeyError: it cannot be read, its password is wrong, or the raw key is malformed.

        """
        self._options = options
        self._sealed: Mapping[str, SealedKey | ShroudedKey] = {}
        self._opened: dict[str, SegmentKey] = {}
        self._raw = _raw_key(options.raw_key) if options.raw_key is not None else None
        if options.keystore is not None:
            self._sealed = _read_store(Path(options.keystore), options.keystore_password or "")

    def key(self, alias: str) -> SegmentKey:
        """Return the key that a segment's header names. The first call for a key blocks briefly.

        The errors have no place: the caller knows that of the segment.

        Raises:
            NoKeyError: there is no key of that name.
            KeySizeError: it is not an AES key.
            KeyStorePasswordError: the key's password is wrong.

        """
        if self._raw is not None:
            return self._raw
        folded = alias.lower()  # Java's key stores ignore case in aliases.
        if folded not in self._opened:
            self._opened[folded] = self._open(alias)
        return self._opened[folded]

    def _open(self, alias: str) -> SegmentKey:
        store = self._options.keystore
        if store is None:
            raise NoKeyError(
                f"an encrypted segment, whose key is called {alias!r}, and no key is given",
                hint=f"give {_OPTIONS}: what transparent_data_encryption_options in "
                "cassandra.yaml names",
            )
        found = [name for name in self._sealed if name.lower() == alias.lower()]
        if not found:
            known = ", ".join(map(repr, sorted(self._sealed))) or "none"
            raise NoKeyError(
                f"the segment's key is called {alias!r}, and the key store {store} has none such",
                hint=f"secret keys in it: {known}",
            )
        name = f"{store}: key {found[0]!r}"
        password = self._options.key_password or self._options.keystore_password or ""
        try:
            material = self._sealed[found[0]].open(password)
        except SegmentKeyError as error:
            error.message = f"{name}: {error.message}"
            error.hint = "give key_password if the key has a password of its own"
            raise
        return _checked(material, name)


def _raw_key(text: str) -> SegmentKey:
    try:
        material = bytes.fromhex(text.strip())
    except ValueError:
        found = "expected hexadecimal digits, found something else"
        raise KeySizeError(found, place="raw_key") from None
    return _checked(material, "raw_key")


def _checked(material: bytes, name: str) -> SegmentKey:
    if len(material) not in KEY_SIZES:
        raise KeySizeError(
            f"{name}: expected 16, 24 or 32 bytes, found {len(material)}",
            hint="Cassandra's segments are encrypted with AES",
        )
    return SegmentKey(name, material)


def _read_store(path: Path, password: str) -> "Mapping[str, SealedKey | ShroudedKey]":
    try:
        with path.open("rb") as file:
            content = file.read(STORE_BYTES_MAX + 1)
    except OSError as error:
        raise KeyStoreError(
            f"cannot be read: {error.strerror}",
            place=str(path),
            hint="keystore is the path of a copy of the node's key store",
        ) from error
    try:
        return _parsed(content, password)
    except SegmentKeyError as error:
        error.place = str(path)
        raise


def _parsed(content: bytes, password: str) -> "Mapping[str, SealedKey | ShroudedKey]":
    # Imported only here: few jobs have a key store.
    from headrace.sources.cassandra.keystore.jceks import MAGIC, read_jceks  # noqa: PLC0415
    from headrace.sources.cassandra.keystore.pkcs12 import read_pkcs12  # noqa: PLC0415

    if len(content) > STORE_BYTES_MAX:
        raise KeyStoreError(f"has more than {STORE_BYTES_MAX} bytes")
    if content.startswith(MAGIC):
        return read_jceks(content, password)
    if content.startswith(_SEQUENCE):
        return read_pkcs12(content, password)
    if content.startswith(_JKS_MAGIC):
        raise KeyStoreError(
            "a JKS store, which cannot hold secret keys", hint="give the JCEKS or PKCS12 store"
        )
    raise KeyStoreError("no key store", hint="expected JCEKS or PKCS12, as keytool writes them")
