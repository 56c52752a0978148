"""The blocks of encrypted segments: section 2.6 of docs/commit-log.md. Pure."""

from typing import Final

from headrace.sources.cassandra.commitlog.compression import LZ4, BlockError
from headrace.sources.cassandra.errors import BadCipherTextError, BadLengthError, WrongKeyError
from headrace.sources.cassandra.keystore.ciphers import SegmentKey, aes

_AES_BYTES: Final = 16
_LENGTH_BYTES: Final = 4
_HEAD_BYTES: Final = 2 * _LENGTH_BYTES  # Before the cipher text, and before the plain text.
_DAMAGED: Final = "the cipher text of a block is damaged"


class SectionCipher:
    """Decrypts the sections of one segment."""

    def __init__(self, key: SegmentKey, iv: bytes) -> None:
        """Set the key; *iv* is used for each block."""
        self._key = key
        self._cipher = aes(key.material, iv)

    def unpack(self, packed: memoryview, room: memoryview) -> None:
        """Decrypt the blocks of *packed* into *room*, which must be as long as the content.

        Raises:
            BlockError: lengths disagree, or a block is damaged.
            WrongKeyError: the key decrypts no block, and never did.

        """
        done = 0
        for cipher_text, plain_bytes in _blocks(packed):
            plain = self._decrypt(cipher_text, plain_bytes)
            if plain is None:
                raise self._not_opened(packed)
            size = _length(plain, 0)
            if not 0 <= size <= len(room) - done:
                found = f"a block of {size} bytes where {len(room) - done} are left of the section"
                raise BlockError(found, BadLengthError)
            try:
                LZ4.unpack(plain[_LENGTH_BYTES:], room[done : done + size])
            except BlockError:
                raise BlockError(_DAMAGED, BadCipherTextError) from None
            done += size
        if done != len(room):
            found = f"the blocks come to {done} bytes, the section to {len(room)}"
            raise BlockError(found, BadLengthError)

    def _decrypt(self, cipher_text: memoryview, plain_bytes: int) -> memoryview | None:
        """Return the plain text of a block; None if its start or its padding is wrong."""
        plain = memoryview(self._cipher.decryptor().update(cipher_text))
        if not _is_headed(plain):
            return None
        self._key.proven = True
        padding = len(cipher_text) - plain_bytes
        return plain[:plain_bytes] if plain[plain_bytes:] == bytes((padding,)) * padding else None

    def _not_opened(self, packed: memoryview) -> Exception:
        """Return the error: of the key if it fits no block, otherwise of this block."""
        heads = (self._cipher.decryptor().update(c[:_AES_BYTES]) for c, _ in _blocks(packed))
        if self._key.proven or any(_is_headed(memoryview(head)) for head in heads):
            return BlockError(_DAMAGED, BadCipherTextError)
        return WrongKeyError(
            f"the key {self._key.name!r} does not open it",
            hint="another key than the node's: compare key_alias and the key store with "
            "transparent_data_encryption_options in its cassandra.yaml",
        )


def _blocks(packed: memoryview) -> list[tuple[memoryview, int]]:
    """Return the cipher text of each block, and the length of its plain text."""
    found = []
    at = 0
    while at < len(packed):
        left = len(packed) - at - _HEAD_BYTES
        if left < 0:
            raise BlockError("a block ends in its lengths", BadLengthError)
        size, plain_bytes = _length(packed, at), _length(packed, at + _LENGTH_BYTES)
        if not 0 < size <= left or size % _AES_BYTES:
            message = f"a block of {size} bytes of cipher text, where {left} are left"
            raise BlockError(message, BadLengthError)
        if not max(_HEAD_BYTES, size - _AES_BYTES) <= plain_bytes < size:
            message = f"{plain_bytes} bytes of plain text in {size} of cipher text"
            raise BlockError(message, BadLengthError)
        at += _HEAD_BYTES
        found.append((packed[at : at + size], plain_bytes))
        at += size
    return found


def _is_headed(plain: memoryview) -> bool:
    """Return whether the two lengths at the start of a block agree: its own and LZ4's."""
    return plain[:_LENGTH_BYTES] == bytes(reversed(plain[_LENGTH_BYTES:_HEAD_BYTES]))


def _length(content: memoryview, at: int) -> int:
    return int.from_bytes(content[at : at + _LENGTH_BYTES], "big", signed=True)
