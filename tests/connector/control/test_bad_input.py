"""Malicious input gives a named error, in bounded time, and changes nothing."""

import time

import pytest

from headrace.connector.control.catalogue import SINKS, SOURCES
from headrace.connector.control.service import ControlService
from headrace.connector.language.cursor import TEXT_BYTES_MAX
from headrace.connector.language.parser import parse_script
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import ROUTES
from headrace.plugins import HeadraceError

SECONDS_MAX = 180  # On a busy machine; it takes less than one.


def code_of(service: ControlService, text: str) -> str:
    """Execute *text*; return the code of its error, whose message has no secret, or ""."""
    code, said = "", ""
    try:
        for parsed in parse_script(text):
            service.execute(parsed.statement)
    except HeadraceError as error:
        code, said = error.code, str(error)
    assert "canary" not in said
    return code


def rows_of(connection: NoteCopy) -> list[object]:
    """Return all that is stored about sinks and sources."""
    return [connection.all(kind) for kind in (SINKS, SOURCES, ROUTES)]


@pytest.mark.parametrize(
    "text",
    [
        "x" * TEXT_BYTES_MAX,
        "é" * (TEXT_BYTES_MAX // 2 + 1),
        "CREATE DATA_SINK k WITH 'bus://a' " + "AND x = 1 " * 90_000,
        "CREATE DATA_SINK k WITH 'bus://a' " + "".join(f"AND x{n} = 1 " for n in range(10_000)),
        f"CREATE DATA_SINK k WITH 'bus://a?{'&'.join(f'x{n}=1' for n in range(10_000))}'",
        f"CREATE DATA_SINK k WITH 'bus://{'a' * 1_000_000}'",
        f"CREATE DATA_SINK {'x' * 300} WITH 'bus://a'",
        "/*" * 500_000,
        "/* /* */ */ DESC DATA_SINKS",
        "(" * 1_000_000,
        "'" * 999_999,
        '"' * 999_999,
        "$$" * 100_000,
        "PREVIEW DATA_SOURCE cdc ON TABLE a.b LIMIT " + "9" * 500_000,
        "CREATE DATA_SINK k WITH 'bus://a' AND seats = " + "9" * 100_000,
        "CREATE DATA_SINK k WITH 'bus://a' AND seats = 1e400",
        "CREATE DATA_SINK k WITH 'bus://a' AND seats = 'NaN'",
        "CREATE DATA_SINK k WITH 'bus://a' AND seats = NaN",
        "CREATE DATA_SINK k WITH 'bus://a' AND seats = 1 AND seats = 2",
        "CREATE DATA_SINK k WITH 'bus://a' AND SEATS = 1 AND seats = 2",
        "CREATE DATA_SINK k WITH 'bus://a?seats=1' AND seats = 2",
        "DROP DATA_SINK k\x00",
        "DROP DATA_SINK \ud800",
        "DROP DATA_SINK \u202ek",
        "DROP DATA_SINK k -- \u2066",
        "DROP DATA_SINK \u2028k",
        "\ufeffDROP DATA_SINK k",
        "DROP\u00a0DATA_SINK k",
        "DROP DATA_SINK k\uff1b",
        "DROP DATA_SINK k; DROP TABLE sinks",
        "DROP DATA_SINK k' OR '1' = '1",
        "CREATE DATA_SINK k WITH 'bus://me:canary@a'",
        "CREATE DATA_SINK k WITH 'bus://a?password=canary'",
        "CREATE DATA_SINK k WITH 'bus://a' AND password = 'canary'",
        "CREATE DATA_SINK k WITH 'bus://a' AND line = '\x1b]52;c;x\x07'",
        "CREATE DATA_SOURCE flow ON TABLE system.local WITH k",
        "CREATE DATA_SOURCE flow ON TABLE system_auth.roles WITH k",
        'CREATE DATA_SOURCE flow ON TABLE "system" . "local" WITH k',
    ],
    ids=lambda text: repr(text[:60]),
)
def test_statement(service: ControlService, connection: NoteCopy, text: str) -> None:
    """A statement that is too large, too deep or wrong is refused as a whole, in bounded time."""
    before, started = rows_of(connection), time.process_time()

    assert code_of(service, text)
    assert SECONDS_MAX > time.process_time() - started
    assert before == rows_of(connection)


@pytest.mark.parametrize(
    "name",
    [
        "a/b", "../a", "..", ".", "a%2fb", "a%2Fb", "a'b", 'a""b', "x" * 49, "x" * 300, "\u0455ink",
        "a b", " ", "", "sink\u0301", "a;b", "a,b", "${env:HOME}", "a\\b", "-- a", "a\tb", "$(id)",
        "a\nb", "\ufb01",
    ],
)  # fmt: skip
def test_names(service: ControlService, connection: NoteCopy, name: str) -> None:
    """A name has plain characters, also in quotes, so that no two names look the same."""
    before = rows_of(connection)
    for text in (
        f"CREATE DATA_SINK \"{name}\" WITH 'bus://a'",
        f'CREATE DATA_SOURCE flow ON TABLE "{name}".t WITH k',
        f'CREATE DATA_SOURCE flow ON TABLE a.t WITH k AND job = "{name}"',
    ):
        assert code_of(service, text) in ("bad_name", "syntax")
    assert before == rows_of(connection)


@pytest.mark.parametrize("name", ["table", "SELECT", "data_sink", "null", "If", "status", "k-1"])
def test_words_as_names(service: ControlService, name: str) -> None:
    """A quoted keyword is a name like any other."""
    assert "" == code_of(service, f"CREATE DATA_SINK \"{name}\" WITH 'bus://a'")
    (row,) = service.execute(next(parse_script("DESC DATA_SINKS")).statement).rows
    assert "" == code_of(service, f'DROP DATA_SINK "{name}"; {row[2]}')


@pytest.mark.parametrize(
    "uri",
    [
        "bus://a@b:9092@c", "bus://a@b", "bus://a\\b", "bus://a\tb", "bus://a b", "bus://a\nb",
        "bus://[fe80::1%25eth0]", "bus://bücher", "bus://k\u0430fka", "bus://a#f", "bus:a",
        "//a", "",
        "bus", "bus://a?x", "bus://a?=1", "bus://a?line=1&line=2", "bus://a?line=%",
        "bus://a?%ff=1",
        "bus://a?line=%00", "bus://a?line=1&l%69ne=2", "bus://a/../b", "bus://a/%2e%2e/b",
        "http://169.254.169.254/", "gopher://a", "file+http://a", "busses://a", "bus://a?Line=1",
    ],
)  # fmt: skip
def test_uris(service: ControlService, connection: NoteCopy, uri: str) -> None:
    """A URI that two programs could read in two ways is refused."""
    before = rows_of(connection)

    quoted = uri.replace("'", "''")
    assert code_of(service, f"CREATE DATA_SINK k WITH '{quoted}'")
    assert before == rows_of(connection)


def test_nothing_is_half_applied(service: ControlService, connection: NoteCopy) -> None:
    """A statement with one mistake among many valid parts changes nothing."""
    assert "" == code_of(service, "CREATE DATA_SINK k WITH 'bus://a' AND seats = 7")
    before = rows_of(connection)
    good = " ".join(f"AND bus.x{number} = '1'" for number in range(200))

    assert "config" == code_of(service, f"ALTER DATA_SINK k WITH line = '2' {good} AND seats = 0")
    assert "config" == code_of(service, f"CREATE DATA_SINK z WITH 'bus://a' {good} AND colour = 1")
    assert before == rows_of(connection)
