"""The C library against the definitions of what it computes, by each way that it can take."""

import ctypes
import random
import subprocess
import sysconfig
import zlib
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

import pytest
from cassandra import murmur3
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.native import constants, ops

LIBRARY = Path(ops.__file__).parent / "c"
# Which instructions may be used: carry-less multiplication, SHA, AVX2, AVX-512.
WAYS = {"portable": (0, 0, 0, 0), "sse": (1, 1, 0, 0), "avx2": (1, 1, 1, 0), "all": (1, 1, 1, 1)}
LENGTHS = [*range(200), 255, 256, 257, 1_000, 1_023, 1_024, 1_025, 9_001]
KEYS = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
SIMPLE = range(constants.AVRO_TEXT, constants.AVRO_DECIMAL + 1)


def compiled(folder: Path) -> ctypes.CDLL:
    """Return the library, compiled in *folder* with the compiler that Python was built with."""
    made = folder / "c_library.so"
    source = Path(__file__).with_name("c_library.c")
    python = sysconfig.get_path("include")
    flags = ["-O2", "-w", "-shared", "-fPIC", f"-I{LIBRARY}", f"-I{python}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(made)], check=True)  # noqa: S603, S607 (the compiler that setup.py needs)
    library = ctypes.CDLL(str(made))
    library.crc32.restype = ctypes.c_uint32
    library.crc32.argtypes = (ctypes.c_char_p, *[ctypes.c_ssize_t] * 2, ctypes.c_uint32)
    library.token.restype = ctypes.c_int64
    library.token.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
    library.siphash_all.argtypes = (
        *(ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int),
        *(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p),
    )
    library.sha16_all.argtypes = (
        *(ctypes.c_char_p, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_char_p),
    )
    library.put_shares.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    library.put_value.restype = ctypes.c_ssize_t
    library.put_value.argtypes = (
        *(ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_ssize_t, ctypes.c_ssize_t),
    )
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return the compiled library."""
    return compiled(tmp_path_factory.mktemp("c"))


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, library: ctypes.CDLL) -> ctypes.CDLL:
    """Return the library, which uses only what one way allows."""
    library.restrict_to(*WAYS[request.param])
    return library


def groups() -> list[list[bytes]]:
    """Return messages in groups of each size from 1 to 40, of lengths that end everywhere."""
    chance = random.Random(7)  # noqa: S311 (no secret)
    lengths = [
        *([n] * 3 for n in LENGTHS),
        *(chance.choices(LENGTHS, k=size) for size in range(1, 41)),
    ]
    return [[chance.randbytes(n) for n in group] for group in lengths]


def ranges(group: list[bytes]) -> ctypes.Array[ctypes.c_int64]:
    """Return the start and the end of each message of a group that is joined."""
    ends = list(accumulate(map(len, group)))
    flat = [n for start, end in zip([0, *ends], ends, strict=False) for n in (start, end)]
    return (ctypes.c_int64 * len(flat))(*flat)


def test_a_checksum_is_zlibs(way: ctypes.CDLL) -> None:
    """Of any length, wherever it starts, continued from any other."""
    content = random.Random(1).randbytes(10_000)  # noqa: S311 (no secret)
    cases = [(start, start + n) for start in range(17) for n in LENGTHS]

    assert [zlib.crc32(content[a:b], a) for a, b in cases] == [
        way.crc32(content, a, b, a) for a, b in cases
    ]


def test_an_id_is_half_of_sha256(way: ctypes.CDLL) -> None:
    """However many messages are hashed side by side, and wherever each of them ends."""
    for group in groups():
        out = ctypes.create_string_buffer(16 * len(group))
        way.sha16_all(b"".join(group), ranges(group), len(group), out)

        assert b"".join(sha256(message).digest()[:16] for message in group) == out.raw


def test_a_digest_is_siphash(way: ctypes.CDLL) -> None:
    """However many messages are hashed side by side, and wherever each of them ends."""
    for group in groups():
        out = (ctypes.c_uint64 * (2 * len(group)))()
        way.siphash_all(b"".join(group), ranges(group), len(group), *KEYS, out)
        expected = memoryview(bytearray(16 * len(group))).cast("Q")
        for i, message in enumerate(group):
            ops.siphash128(message, 0, len(message), *KEYS, expected[2 * i : 2 * i + 2])

        assert list(expected) == list(out)


@given(key=st.binary(min_size=1, max_size=80))
def test_a_token_is_the_drivers(library: ctypes.CDLL, key: bytes) -> None:
    """Of any key."""
    assert min(int(murmur3.murmur3(key)), (1 << 63) - 1) == library.token(key, len(key))


@given(
    kind=st.sampled_from(SIMPLE),
    raw=st.one_of(
        st.sampled_from([1, 2, 4, 8, 16]).flatmap(lambda n: st.binary(min_size=n, max_size=n)),
        st.binary(min_size=1, max_size=200),
        st.text(min_size=1).map(str.encode),
    ),
    behind=st.sampled_from([0, 100]),
)
def test_a_value_is_written_as_in_python(
    library: ctypes.CDLL, kind: int, raw: bytes, behind: int
) -> None:
    """Each simple type from any bytes, whether or not more may be read behind them."""
    room = len(raw) + constants.COLUMN_BYTES
    expected, out = bytearray(room), ctypes.create_string_buffer(room)

    end = ops.put_value(expected, 0, kind, raw, 0, len(raw))

    assert end == library.put_value(out, kind, raw + bytes(behind), len(raw), len(raw) + behind)
    assert end < 0 or expected[:end] == out.raw[:end]


@given(digest=st.integers(0, (1 << 128) - 1), count=st.integers(0, 9))
def test_shares_are_those_of_python(library: ctypes.CDLL, digest: int, count: int) -> None:
    """The checksums of all changes of a mutation."""
    halves = (ctypes.c_uint64 * 2)(digest % (1 << 64), digest >> 64)
    out = (ctypes.c_uint64 * (2 * count))()

    library.put_shares(out, halves, count)

    assert ops.shares_of(list(halves), 0, count)[:count] == [
        low | high << 64 for low, high in zip(out[::2], out[1::2], strict=True)
    ]
