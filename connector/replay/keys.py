"""A file of keys, encoded as the messages' keys are, so that bytes can be compared with bytes."""

from pathlib import Path
from typing import Final

from headrace.connector.replay.errors import bad_option

KEYS_MAX: Final = 100_000
_HEX: Final = "hex:"


def keys_in(path: Path) -> frozenset[bytes]:
    """Return the keys in the file at *path*.

    A line is a key as a message has it: `hex:` and hexadecimal digits, or, where keys are JSON or
    text, the key itself.

    Raises:
        ConfigError: the file cannot be read, holds none, or too many.

    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise bad_option("--keys-file", f"{path}: {error}") from error
    found = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.add(bytes.fromhex(line[len(_HEX) :]) if line.startswith(_HEX) else line.encode())
        except ValueError as error:
            raise bad_option("--keys-file", f"{path}: line {number}: no hexadecimal") from error
    if not 0 < len(found) <= KEYS_MAX:
        hint = f"1 to {KEYS_MAX} keys; `--token-range` for more"
        raise bad_option("--keys-file", f"{path} has {len(found)} keys", hint)
    return frozenset(found)
