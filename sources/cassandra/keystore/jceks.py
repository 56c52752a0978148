"""Secret keys in Java's JCEKS key stores, which Cassandra reads by default.

An entry is a serialised Java object, encrypted with a password, sealed in another object and
serialised again. Only the parts of Java's serialisation that these two need are supported. Pure.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headrace.sources.cassandra.errors import DOES_NOT_OPEN, KeyStoreError, KeyStorePasswordError
from headrace.sources.cassandra.keystore import java_objects
from headrace.sources.cassandra.keystore.ciphers import triple_des
from headrace.sources.cassandra.keystore.der import OCTET_STRING, SEQUENCE, Der, DerError
from headrace.sources.cassandra.keystore.java_objects import DataInput, JavaObjectError, read_object

MAGIC: Final = bytes.fromhex("cececece")
ITERATIONS_MAX: Final = 5_000_000  # The limit of Java.

_DIGEST_BYTES: Final = 20
_DIGEST_WORD: Final = b"Mighty Aphrodite"
_VERSIONS: Final = (1, 2)
_PRIVATE_KEY, _CERTIFICATE, _SECRET_KEY = 1, 2, 3
_ALGORITHM: Final = "PBEWithMD5AndTripleDES"
_SALT_BYTES: Final = 8
_BLOCK_BYTES: Final = 8
_KEY_BYTES: Final = 24


class SealedKey(msgspec.Struct, frozen=True):
    """A secret key as it is in the store."""

    salt: bytes
    iterations: int
    content: bytes

    def open(self, password: str) -> bytes:
        """Return the key's bytes. Takes 0.1 s or more, by design of Java.

        Raises:
            KeyStorePasswordError: the password is wrong.
            KeyStoreError: the content is not a secret key.

        """
        key, iv = _derive(password.encode("latin-1", "replace"), self.salt, self.iterations)
        decryptor = triple_des(key, iv).decryptor()
        plain = decryptor.update(self.content)
        padding = plain[-1]
        if not 1 <= padding <= _BLOCK_BYTES or not plain.startswith(java_objects.MAGIC):
            raise KeyStorePasswordError(DOES_NOT_OPEN)
        try:
            fields = read_object(DataInput(plain[:-padding]))
        except JavaObjectError as error:
            raise KeyStoreError(f"the key in an entry: {error}") from None
        for name in ("key", "encoded"):  # Of SecretKeySpec, of KeyRep.
            if isinstance(fields.get(name), bytes):
                return bytes(fields[name])
        raise KeyStoreError("an entry that is not a secret key")


def read_jceks(content: bytes, password: str) -> Mapping[str, SealedKey]:
    """Return the secret keys of a store by alias; other entries are skipped.

    Raises:
        KeyStorePasswordError: the digest does not match the content and the password.
        KeyStoreError: the store is damaged.

    """
    body, stored = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    # The format prescribes SHA-1.
    digest = hashlib.sha1(password.encode("utf-16-be"), usedforsecurity=False)
    digest.update(_DIGEST_WORD + body)
    if not hmac.compare_digest(digest.digest(), stored):
        raise KeyStorePasswordError(DOES_NOT_OPEN)
    try:
        return _entries(DataInput(body))
    except (JavaObjectError, DerError) as error:
        raise KeyStoreError(f"an entry is damaged: {error}") from None


def _entries(cursor: DataInput) -> Mapping[str, SealedKey]:
    cursor.take(len(MAGIC))
    version = cursor.number(4)
    if version not in _VERSIONS:
        raise KeyStoreError(f"version {version}")
    found = {}
    for _ in range(cursor.number(4)):
        kind, alias, _date = cursor.number(4), cursor.text(), cursor.take(8)
        if kind == _SECRET_KEY:
            found[alias] = _sealed(read_object(cursor))
        elif kind == _PRIVATE_KEY:
            cursor.take(cursor.number(4))
            for _ in range(cursor.number(4)):
                _certificate(cursor, version)
        elif kind == _CERTIFICATE:
            _certificate(cursor, version)
        else:
            raise KeyStoreError(f"an entry of kind {kind}")
    return found


def _certificate(cursor: DataInput, version: int) -> None:
    if version > 1:
        cursor.text()
    cursor.take(cursor.number(4))


def _sealed(fields: Mapping[str, Any]) -> SealedKey:
    """Read a SealedObject: its content, and the parameters of its encryption."""
    algorithm, parameters = fields.get("sealAlg"), fields.get("encodedParams")
    content = fields.get("encryptedContent")
    if algorithm != _ALGORITHM:
        raise KeyStoreError(f"a key sealed with {algorithm}")
    if not isinstance(parameters, bytes) or not isinstance(content, bytes):
        raise KeyStoreError("a sealed key without its parameters")
    pair = Der(parameters).inside(SEQUENCE)
    salt, iterations = pair.next(OCTET_STRING), pair.integer()
    if len(salt) != _SALT_BYTES or not 0 < iterations <= ITERATIONS_MAX:
        raise KeyStoreError(f"a salt of {len(salt)} bytes and {iterations} iterations")
    if not content or len(content) % _BLOCK_BYTES:
        raise KeyStoreError(f"a sealed key of {len(content)} bytes")
    return SealedKey(salt, iterations, content)


def _derive(password: bytes, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """Return the key and the IV that Java's PBEWithMD5AndTripleDES derives from a password."""
    first, second = salt[:4], salt[4:]
    if first == second:
        first = first[::-1]
    derived = b""
    for half in (first, second):
        digest = half
        for _ in range(iterations):
            digest = hashlib.md5(digest + password, usedforsecurity=False).digest()
        derived += digest
    return derived[:_KEY_BYTES], derived[_KEY_BYTES:]
