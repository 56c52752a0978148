"""What a process that freed large blocks still holds."""

import subprocess
import sys
from typing import Final

BLOCKS: Final = 60
KEPT_BYTES_MAX: Final = 8_000_000
# Large blocks come and go while small ones between them stay: as batches do.
PROGRAM: Final = f"""
import re
from headrace.connector.runtime.allocator import return_large_blocks

def resident():
    status = open("/proc/self/status").read()
    return int(re.search(r"VmRSS:\\s+(\\d+)", status)[1]) * 1024

return_large_blocks()
bytes(30_000_000)
before = resident()
kept = []
large = []
for i in range({BLOCKS}):
    large.append(bytearray(1_000_000))
    kept.append(bytearray(100_000))
del large
print(resident() - before - sum(map(len, kept)))
"""


def test_freed_blocks_go_back() -> None:
    """Of 60 MB in large blocks, with small ones between them, nearly nothing stays."""
    done = subprocess.run(  # noqa: S603 (our own program)
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )

    assert int(done.stdout) < KEPT_BYTES_MAX
