"""Secret keys in PKCS#12 key stores as Java's keytool writes them: RFC 7292 and 8018. Pure.

They are in secret bags, each of which contains the structure of an encrypted private key. Parts
that are encrypted as a whole contain only certificates, and are skipped.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.sources.cassandra.errors import DOES_NOT_OPEN, KeyStoreError, KeyStorePasswordError
from headrace.sources.cassandra.keystore.ciphers import CbcCipher, aes, triple_des
from headrace.sources.cassandra.keystore.der import (
    BMP_STRING,
    EXPLICIT_0,
    INTEGER,
    OCTET_STRING,
    SEQUENCE,
    SET,
    Der,
    DerError,
)

ITERATIONS_MAX: Final = 5_000_000  # The limit of Java.

_DATA: Final = "1.2.840.113549.1.7.1"
_BAG: Final = "1.2.840.113549.1.12.10.1.5"
_SHROUDED: Final = "1.2.840.113549.1.12.10.1.2"
_FRIENDLY_NAME: Final = "1.2.840.113549.1.9.20"
_PBES2, _PBKDF2 = "1.2.840.113549.1.5.13", "1.2.840.113549.1.5.12"
_SHA1_3DES: Final = "1.2.840.113549.1.12.1.3"  # Written by Java 8.
_DIGESTS: Final = {
    "1.3.14.3.2.26": "sha1",
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}
_HMACS: Final = {
    "1.2.840.113549.2.7": "sha1",
    "1.2.840.113549.2.9": "sha256",
    "1.2.840.113549.2.10": "sha384",
    "1.2.840.113549.2.11": "sha512",
}
_AES_CBC: Final = {
    "2.16.840.1.101.3.4.1.2": 16,
    "2.16.840.1.101.3.4.1.22": 24,
    "2.16.840.1.101.3.4.1.42": 32,
}
_IV_BYTES: Final = 16
_FOR_KEY, _FOR_IV, _FOR_MAC = 1, 2, 3


class ShroudedKey(msgspec.Struct, frozen=True):
    """A secret key as it is in the store."""

    content: bytes

    def open(self, password: str) -> bytes:
        """Return the key's bytes.

        Raises:
            KeyStorePasswordError: the password is wrong.
            KeyStoreError: the encryption is not supported, or the key is damaged.

        """
        try:
            shrouded = Der(self.content).inside(SEQUENCE)
            algorithm = shrouded.inside(SEQUENCE)
            cipher_text = shrouded.next(OCTET_STRING)
            plain = _decrypt(algorithm, cipher_text, password)
        except DerError:
            raise KeyStoreError("an encrypted key is damaged") from None
        try:
            key = Der(plain).inside(SEQUENCE)
            key.integer()
            key.next(SEQUENCE)
            return key.next(OCTET_STRING)
        except DerError:
            raise KeyStorePasswordError(DOES_NOT_OPEN) from None


def read_pkcs12(content: bytes, password: str) -> Mapping[str, ShroudedKey]:
    """Return the secret keys of a store by alias; other entries are skipped.

    Raises:
        KeyStorePasswordError: the store's checksum does not match the content and the password.
        KeyStoreError: the store is damaged, or of an unsupported kind.

    """
    try:
        store = Der(content).inside(SEQUENCE)
        store.integer()
        safe = _data(store.inside(SEQUENCE))
        if safe is None or not store:
            raise KeyStoreError("a store that is signed, not guarded by a password")
        _check(store.inside(SEQUENCE), safe, password)
        found: dict[str, ShroudedKey] = {}
        parts = Der(safe).inside(SEQUENCE)
        while parts:
            part = _data(parts.inside(SEQUENCE))
            bags = Der(part or b"\x30\x00").inside(SEQUENCE)
            while bags:
                found.update(_secret(bags.inside(SEQUENCE)))
    except DerError:
        raise KeyStoreError("it is damaged") from None
    return found


def _data(info: Der) -> bytes | None:
    """Return the content of a ContentInfo; None if it is encrypted or signed."""
    if info.object_id() != _DATA:
        return None
    return info.inside(EXPLICIT_0).next(OCTET_STRING)


def _check(mac: Der, safe: bytes, password: str) -> None:
    """Check the store's HMAC."""
    info = mac.inside(SEQUENCE)
    algorithm, expected = info.inside(SEQUENCE).object_id(), info.next(OCTET_STRING)
    salt = mac.next(OCTET_STRING)
    iterations = _iterations(mac.integer() if mac.is_next(INTEGER) else 1)
    name = _DIGESTS.get(algorithm)
    if name is None:
        raise KeyStoreError(f"a checksum of kind {algorithm}")
    size = hashlib.new(name).digest_size
    key = _derive(name, _bmp(password), salt, iterations, purpose=_FOR_MAC, size=size)
    if not hmac.compare_digest(hmac.digest(key, safe, name), expected):
        raise KeyStorePasswordError(DOES_NOT_OPEN)


def _secret(bag: Der) -> Mapping[str, ShroudedKey]:
    """Return the key of a SafeBag under its alias; nothing if the bag has other content."""
    if bag.object_id() != _BAG:
        return {}
    value = bag.inside(EXPLICIT_0).inside(SEQUENCE)
    if value.object_id() != _SHROUDED:
        return {}
    content = value.inside(EXPLICIT_0).next(OCTET_STRING)
    attributes = bag.inside(SET) if bag else Der(b"")
    while attributes:
        attribute = attributes.inside(SEQUENCE)
        if attribute.object_id() == _FRIENDLY_NAME:
            alias = attribute.inside(SET).next(BMP_STRING)
            return {alias.decode("utf-16-be", "replace"): ShroudedKey(content)}
    return {}


def _decrypt(algorithm: Der, cipher_text: bytes, password: str) -> bytes:
    name = algorithm.object_id()
    parameters = algorithm.inside(SEQUENCE)
    if name == _PBES2:
        cipher = _pbes2(parameters, password)
    elif name == _SHA1_3DES:
        salt, iterations = parameters.next(OCTET_STRING), _iterations(parameters.integer())
        secret = _bmp(password)
        key = _derive("sha1", secret, salt, iterations, purpose=_FOR_KEY, size=24)
        iv = _derive("sha1", secret, salt, iterations, purpose=_FOR_IV, size=8)
        cipher = triple_des(key, iv)
    else:
        raise KeyStoreError(f"a key encrypted by {name}")
    try:
        decryptor = cipher.decryptor()
        return decryptor.update(cipher_text) + decryptor.finalize()
    except ValueError:
        raise DerError from None


def _pbes2(parameters: Der, password: str) -> CbcCipher:
    derivation, encryption = parameters.inside(SEQUENCE), parameters.inside(SEQUENCE)
    function, scheme = derivation.object_id(), encryption.object_id()
    if function != _PBKDF2 or scheme not in _AES_CBC:
        raise KeyStoreError(f"a key encrypted by {scheme}, under {function}")
    settings = derivation.inside(SEQUENCE)
    salt, iterations = settings.next(OCTET_STRING), _iterations(settings.integer())
    if settings.is_next(INTEGER):
        settings.integer()
    digest = _HMACS.get(settings.inside(SEQUENCE).object_id() if settings else "", "sha1")
    iv = encryption.next(OCTET_STRING)
    if len(iv) != _IV_BYTES:
        raise DerError
    key = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations, _AES_CBC[scheme])
    return aes(key, iv)


def _iterations(found: int) -> int:
    if not 0 < found <= ITERATIONS_MAX:
        raise KeyStoreError(f"{found} iterations")
    return found


def _bmp(password: str) -> bytes:
    return password.encode("utf-16-be") + b"\0\0"


def _derive(  # noqa: PLR0913 (the inputs of RFC 7292)
    digest: str, password: bytes, salt: bytes, iterations: int, *, purpose: int, size: int
) -> bytes:
    """Return *size* bytes by the derivation of RFC 7292, appendix B.2."""
    block = hashlib.new(digest).block_size
    mixed = _filled(salt, block) + _filled(password, block)
    derived = b""
    while len(derived) < size:
        part = bytes((purpose,)) * block + mixed
        for _ in range(iterations):
            part = hashlib.new(digest, part, usedforsecurity=False).digest()
        derived += part
        addend = int.from_bytes(_filled(part, block), "big") + 1
        mixed = b"".join(
            ((int.from_bytes(mixed[i : i + block], "big") + addend) % (1 << 8 * block)).to_bytes(
                block, "big"
            )
            for i in range(0, len(mixed), block)
        )
    return derived[:size]


def _filled(content: bytes, block: int) -> bytes:
    """Return *content* repeated to the next multiple of *block*."""
    size = -(-len(content) // block) * block
    return (content * (size // len(content) + 1))[:size] if content else b""
