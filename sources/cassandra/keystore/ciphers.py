"""The ciphers of logs and key stores, and the key of an encrypted segment.

Their library is loaded on the first use: it takes 8 MB, and most logs are not encrypted.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

CbcCipher: TypeAlias = "Cipher[modes.CBC]"
KEY_SIZES: Final = (16, 24, 32)


@dataclass(slots=True)
class SegmentKey:
    """An AES key of segments; `proven` after it has decrypted a block.

    After that, a block that it cannot decrypt is damaged; before, the key may be wrong.
    """

    name: str
    material: bytes = field(repr=False)
    proven: bool = False


def aes(key: bytes, iv: bytes) -> CbcCipher:
    """Return AES in CBC mode."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415

    return Cipher(algorithms.AES(key), modes.CBC(iv))


def triple_des(key: bytes, iv: bytes) -> CbcCipher:
    """Return Triple DES in CBC mode, as key stores use it."""
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers import Cipher, modes  # noqa: PLC0415

    return Cipher(TripleDES(key), modes.CBC(iv))
