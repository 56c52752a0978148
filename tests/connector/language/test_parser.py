"""Statements are read as CEP-44 prints them and as CQL's users write them; the rest is an error."""

import contextlib
import shlex
import textwrap

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.connector.language.cursor import NAME_CHARS_MAX
from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.formatting import format_statement
from headrace.connector.language.parser import (
    OPTIONS_MAX,
    PREVIEW_MAX,
    outlook,
    parse_script,
    parse_statement,
)
from headrace.connector.language.statements import (
    NO_TABLE,
    AcceptGap,
    AlterCdc,
    AlterSink,
    AlterSource,
    Bulk,
    BulkSource,
    Comparison,
    Condition,
    CreateCdc,
    CreateSink,
    CreateSource,
    DescribeCdc,
    DescribeSink,
    DescribeSinks,
    DescribeSource,
    DescribeSources,
    DropCdc,
    DropRun,
    DropSink,
    DropSource,
    Moment,
    PollCdc,
    PreviewSource,
    RedriveLetters,
    SelectCdc,
    SetMode,
    SetPosition,
    Show,
    SnapshotSource,
    SourceName,
    Statement,
    SteerRun,
    SteerSource,
    Subject,
    TableName,
    TailCdc,
    ValidateSink,
    Verb,
)
from helpers.cost import calls_of
from helpers.jobs.statements import statements

NO_A = (("a", None),)
ORDERS = TableName("shop", "orders")
STARTERS = (
    "CREATE", "ALTER", "DROP", "DESCRIBE", "DESC", "SHOW", "VALIDATE", "PREVIEW", "SNAPSHOT",
    "BACKFILL", "REPLAY", "RECONCILE",
    "ACCEPT", "REDRIVE", "SELECT", "TAIL", "POLL", "PAUSE", "RESUME", "STOP", "RESTART",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # CEP-44's six, as printed, with its placeholders filled in.
        (
            "CREATE DATA_SINK k WITH kafka://kafkacluster:9092?param1=value1&param2=value2",
            CreateSink(name="k", uri="kafka://kafkacluster:9092?param1=value1&param2=value2"),
        ),
        ("DROP DATA_SINK k", DropSink(name="k")),
        ("DESCRIBE DATA_SINKS", DescribeSinks()),
        (
            "CREATE DATA_SOURCE cdc ON TABLE orders WITH k",
            CreateSource(word="cdc", table=TableName(None, "orders"), sink="k"),
        ),
        (
            "DROP DATA_SOURCE cdc ON TABLE orders",
            DropSource(word="cdc", table=TableName(None, "orders")),
        ),
        ("DESCRIBE DATA_SOURCES", DescribeSources()),
        # And what stands around them.
        ("create Data_Sink K with 'a://b';", CreateSink(name="k", uri="a://b")),
        (
            """CREATE DATA_SINK IF NOT EXISTS k WITH 'a://b' AND A.B = 'c'
            AND n = 1 AND b = TRUE AND "X.y" = 'it''s'""",
            CreateSink(
                name="k",
                uri="a://b",
                if_not_exists=True,
                options=(
                    ("a.b", "c"),
                    ("n", "1"),
                    ("b", "true"),
                    ("X.y", "it's"),
                ),
            ),
        ),
        (
            'CREATE DATA_SOURCE IF NOT EXISTS cdc ON TABLE "Shop".orders WITH "K" AND job = \'j\'',
            CreateSource(
                word="cdc",
                table=TableName("Shop", "orders"),
                sink="K",
                options=(("job", "j"),),
                if_not_exists=True,
            ),
        ),
        ("DROP DATA_SINK IF EXISTS k", DropSink(name="k", if_exists=True)),
        (
            "DROP DATA_SOURCE IF EXISTS cdc ON TABLE shop.orders",
            DropSource(word="cdc", table=ORDERS, if_exists=True),
        ),
        ("DESC DATA_SINK k", DescribeSink(name="k")),
        ("DESC DATA_SINK k AS CONFIG", DescribeSink(name="k", as_config=True)),
        (
            "DESCRIBE DATA_SOURCE cdc ON TABLE shop.orders AS CONFIG",
            DescribeSource(word="cdc", table=ORDERS, as_config=True),
        ),
        (
            "ALTER DATA_SINK IF EXISTS k WITH 'a://b' AND x.y = NULL AND n = 1",
            AlterSink(name="k", uri="a://b", if_exists=True, options=(("x.y", None), ("n", "1"))),
        ),
        ("alter data_sink k with x.y = 'z'", AlterSink(name="k", options=(("x.y", "z"),))),
        ("ALTER DATA_SINK k WITH a://b;", AlterSink(name="k", uri="a://b")),
        (
            "ALTER DATA_SOURCE cdc ON TABLE shop.orders WITH k AND job = 'j'",
            AlterSource(word="cdc", table=ORDERS, sink="k", options=(("job", "j"),)),
        ),
        (
            "ALTER DATA_SOURCE IF EXISTS cdc ON TABLE shop.orders WITH job = null",
            AlterSource(word="cdc", table=ORDERS, options=(("job", None),), if_exists=True),
        ),
        (
            'ALTER DATA_SOURCE cdc ON TABLE shop.orders WITH "job" = 1',
            AlterSource(word="cdc", table=ORDERS, options=(("job", "1"),)),
        ),
        (
            "ALTER DATA_SOURCE cdc ON TABLE shop.orders SET POSITION = 'earliest'",
            SetPosition(word="cdc", table=ORDERS, position="earliest"),
        ),
        (
            "ALTER DATA_SOURCE cdc ON TABLE shop.orders SET POSITION = '9:1' FOR SPLIT '3' DRY RUN",
            SetPosition(word="cdc", table=ORDERS, position="9:1", split="3", dry_run=True),
        ),
        ("VALIDATE DATA_SINK k", ValidateSink(name="k")),
        (
            "pause data_source cdc ON TABLE shop.orders",
            SteerSource(verb=Verb.PAUSE, word="cdc", table=ORDERS),
        ),
        (
            "RESTART DATA_SOURCE cdc ON TABLE shop.orders",
            SteerSource(verb=Verb.RESTART, word="cdc", table=ORDERS),
        ),
        (
            "PREVIEW DATA_SOURCE cdc ON TABLE shop.orders LIMIT 5",
            PreviewSource(word="cdc", table=ORDERS, limit=5),
        ),
        (
            "snapshot data_source cdc on table shop.orders where token() > -5 and TOKEN() <= 7",
            SnapshotSource(
                word="cdc",
                table=ORDERS,
                where=(
                    Condition("token()", Comparison.AFTER, (-5,)),
                    Condition("token()", Comparison.AT_MOST, (7,)),
                ),
            ),
        ),
        (
            "SNAPSHOT DATA_SOURCE cdc ON TABLE shop.orders WHERE id = 9223372036854775807",
            SnapshotSource(
                word="cdc",
                table=ORDERS,
                where=(Condition("id", Comparison.EQUAL, ((1 << 63) - 1,)),),
            ),
        ),
        ("PAUSE SNAPSHOT 'a'", SteerRun(verb=Verb.PAUSE, name="a")),
        ("resume run 'a'", SteerRun(verb=Verb.RESUME, name="a")),
        ("DROP RUN 'a'", DropRun(name="a")),
        ("SHOW RUNS", Show(subject=Subject.RUNS)),
        (
            "backfill data_source cdc on table shop.orders with suffix = '.b' and rate = 5",
            SnapshotSource(word="cdc", table=ORDERS, options=(("suffix", ".b"), ("rate", "5"))),
        ),
        (
            "REPLAY DATA_SOURCE cdc ON TABLE shop.orders FROM '2026-01-31' TO NOW() - '1h'",
            BulkSource(
                verb=Bulk.REPLAY,
                word="cdc",
                table=ORDERS,
                since="2026-01-31",
                before=Moment(None, "1h"),
                options=(),
            ),
        ),
        (
            "reconcile data_source lines",
            BulkSource(verb=Bulk.RECONCILE, word="lines", table=NO_TABLE),
        ),
        (
            "create data_source lines with k and plugin = 'files' and path = 'in'",
            CreateSource(
                word="lines",
                table=NO_TABLE,
                sink="k",
                options=(("plugin", "files"), ("path", "in")),
            ),
        ),
        ("PAUSE DATA_SOURCE lines", SteerSource(verb=Verb.PAUSE, word="lines", table=NO_TABLE)),
        ("SHOW SNAPSHOTS", Show(subject=Subject.SNAPSHOTS)),
        ("accept gap 'n:1' for job 'j'", AcceptGap(gap="n:1", job="j", policy="EXPIRE")),
        ("ACCEPT GAP 'n:1' FOR JOB 'j' ASSUME", AcceptGap(gap="n:1", job="j", policy="ASSUME")),
        ("redrive dead_letters for job 'j'", RedriveLetters(job="j")),
        ("REDRIVE DEAD_LETTER 7 FOR JOB 'j'", RedriveLetters(job="j", number=7)),
        ("PREVIEW DATA_SOURCE cdc ON TABLE shop.orders", PreviewSource(word="cdc", table=ORDERS)),
        ("SHOW LAG", Show(subject=Subject.LAG)),
        ("SHOW MODE", Show(subject=Subject.MODE)),
        ("show mode changes", Show(subject=Subject.MODE_CHANGES)),
        (
            "ALTER DATA_SOURCE cdc ON TABLE orders SET MODE = 'realtime' FOR NODE 'n1' WAIT 30s",
            SetMode(
                word="cdc",
                table=TableName(None, "orders"),
                mode="realtime",
                node="n1",
                wait="30s",
            ),
        ),
        (
            "SHOW ERRORS FOR DATA_SOURCE cdc ON TABLE shop.orders",
            Show(subject=Subject.ERRORS, source=SourceName("cdc", ORDERS)),
        ),
        (
            """CREATE CDC IF NOT EXISTS h ON shop.orders INCLUDE (CHANGE, pre)
            WITH buckets = 8 AND retention = 7d AND seed = 'empty'""",
            CreateCdc(
                name="h",
                table=ORDERS,
                include=("change", "pre"),
                options=(("buckets", "8"), ("retention", "7d"), ("seed", "empty")),
                if_not_exists=True,
            ),
        ),
        (
            "Create CDC h on orders INCLUDE (pre | post | all) INDEX = GLOBAL SALT_BUCKETS=4",
            CreateCdc(
                name="h",
                table=TableName(None, "orders"),
                include=("change", "pre", "post", "latest"),
                options=(("buckets", "4"),),
            ),
        ),
        (
            "ALTER CDC h INCLUDE (POST) WITH retention = '3d'",
            AlterCdc(name="h", include=("post",), options=(("retention", "3d"),)),
        ),
        (
            "ALTER CDC IF EXISTS h INCLUDE (POST)",
            AlterCdc(name="h", include=("post",), if_exists=True),
        ),
        (
            "DROP CDC IF EXISTS h ON shop.orders PURGE",
            DropCdc(name="h", if_exists=True, purge=True),
        ),
        ("DESC CDC", DescribeCdc()),
        ("DESCRIBE CDC h", DescribeCdc(name="h")),
        (
            """SELECT /*+ CDC_INCLUDE(PRE, POST) */ JSON FROM h
            WHERE PHOENIX_ROW_TIMESTAMP() >= TO_DATE('2026-01-01') AND CDC_TIME() < NOW() - 5m
            AND PARTITION_ID() IN (1, 2) AND id = 7 AND write_time() > 0 AND ok = TRUE
            ORDER BY CDC_TIME() DESC LIMIT 5 AFTER 'x'""",
            SelectCdc(
                name="h",
                as_json=True,
                scopes=("pre", "post"),
                where=(
                    Condition("cdc_time()", Comparison.AT_LEAST, (Moment("2026-01-01"),)),
                    Condition("cdc_time()", Comparison.BEFORE, (Moment(None, "5m"),)),
                    Condition("partition_id()", Comparison.IN, (1, 2)),
                    Condition("id", Comparison.EQUAL, (7,)),
                    Condition("write_time()", Comparison.AFTER, (0,)),
                    Condition("ok", Comparison.EQUAL, (True,)),
                ),
                descending=True,
                limit=5,
                after="x",
            ),
        ),
        (
            'SELECT cdc_time, "CDC JSON", PARTITION_ID() FROM h',
            SelectCdc(name="h", columns=("cdc_time", "CDC JSON", "partition_id")),
        ),
        (
            "SELECT * FROM h LATEST FROM SOURCE",
            SelectCdc(name="h", source_level="LOCAL_QUORUM"),
        ),
        (
            "SELECT JSON FROM h LIMIT 5 latest from source consistency one",
            SelectCdc(name="h", as_json=True, limit=5, source_level="ONE"),
        ),
        (
            "TAIL h JSON FROM NOW() LIMIT 3 WAIT 500ms",
            TailCdc(name="h", as_json=True, since=Moment(None), limit=3, wait="500ms"),
        ),
        ("TAIL h AFTER 'x'", TailCdc(name="h", after="x")),
        (
            "POLL h EVERY 500ms SAFETY '1s' FROM 17",
            PollCdc(name="h", every="500ms", safety="1s", since=17),
        ),
        ("DROP -- a\n DATA_SINK // b\n /* c */ k", DropSink(name="k")),
        ("DROP DATA_SINK data_sink", DropSink(name="data_sink")),
        ('DROP DATA_SINK "table"', DropSink(name="table")),
        (
            "CREATE DATA_SINK k WITH 'a://b' AND schema.table = 1",
            CreateSink(name="k", uri="a://b", options=(("schema.table", "1"),)),
        ),
    ],
)
def test_statement(text: str, expected: Statement) -> None:
    """Each form means the statement it stands for."""
    assert expected == parse_statement(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "CREATE DATA_SNK k",
            """\
            SyntaxException: line 1:7 found 'DATA_SNK', expected DATA_SINK, DATA_SOURCE or CDC
              CREATE DATA_SNK k
                     ^^^^^^^^
            hint: did you mean DATA_SINK?""",
        ),
        (
            "DROP DATA_SINK k;\n UPDATE t SET a = 1",
            """\
            SyntaxException: line 2:1 found 'UPDATE', expected CREATE, ALTER, DROP, DESCRIBE, \
DESC, SHOW, VALIDATE, PREVIEW, SNAPSHOT, BACKFILL, REPLAY, RECONCILE, ACCEPT, REDRIVE, \
SELECT, TAIL, POLL, PAUSE, RESUME, STOP or RESTART
               UPDATE t SET a = *
               ^^^^^^
            hint: UPDATE is CQL: give it to cqlsh, or to headrace shell HOST""",
        ),
        (
            "CREATE DATA_SINK k WITH 'a://b', c = 1",
            """\
            SyntaxException: line 1:31 found ',', expected AND or ;
              CREATE DATA_SINK k WITH 'a://b', c = *
                                             ^
            hint: options are joined by AND""",
        ),
        (
            "SELECT * FROM shop.orders",
            """\
            SyntaxException: line 1:18 a CDC has no keyspace
              SELECT * FROM shop.orders
                                ^
            hint: a SELECT of a table is CQL: give it to cqlsh, or to headrace shell HOST""",
        ),
        (
            "SELECT /*+ CDC_INCLUDE(PRE, PAST) */ * FROM h",
            """\
            SyntaxException: line 1:23 CDC_INCLUDE has CHANGE, PRE, POST, LATEST, ALL, found 'PAST'
              SELECT /*+ CDC_INCLUDE(PRE, PAST) */ * FROM h
                                     ^^^^^^^^^""",
        ),
        (
            "SELECT * FROM h WHERE TOKEN() = 1",
            """\
            SyntaxException: line 1:22 found 'TOKEN', expected column name
              SELECT * FROM h WHERE TOKEN() = *
                                    ^^^^^
            hint: TOKEN is reserved; as a name it is written "TOKEN\"""",
        ),
        (
            "SELECT * FROM h WHERE TTL() = 1",
            """\
            SyntaxException: line 1:22 TTL() is unknown, there are CDC_TIME(), \
PHOENIX_ROW_TIMESTAMP(), PARTITION_ID(), WRITE_TIME()
              SELECT * FROM h WHERE TTL() = *
                                    ^^^""",
        ),
        (
            "SELECT * FROM h ORDER BY id",
            """\
            SyntaxException: line 1:25 expected CDC_TIME(): changes have no other order
              SELECT * FROM h ORDER BY id
                                       ^^""",
        ),
        (
            "CREATE TABLE t",
            """\
            SyntaxException: line 1:7 found 'TABLE', expected DATA_SINK, DATA_SOURCE or CDC
              CREATE TABLE t
                     ^^^^^
            hint: TABLE is CQL's: give it to cqlsh, or to headrace shell HOST""",
        ),
        (
            "DROP DATA_SINK k k",
            """\
            SyntaxException: line 1:17 found 'k', expected ;
              DROP DATA_SINK k k
                               ^""",
        ),
        (
            "DROP DATA_SINK",
            """\
            SyntaxException: line 1:14 found the end of the text, expected IF or sink name
              DROP DATA_SINK
                            ^""",
        ),
        (
            "CREATE DATA_SINK 'k' WITH 'a://b'",
            """\
            SyntaxException: line 1:17 found a string, expected IF or sink name
              CREATE DATA_SINK 'k' WITH 'a://b'
                               ^^^
            hint: a name stands in no quotes, or in double quotes""",
        ),
        (
            "CREATE DATA_SINK Table WITH 'a://b'",
            """\
            SyntaxException: line 1:17 found 'Table', expected IF or sink name
              CREATE DATA_SINK Table WITH 'a://b'
                               ^^^^^
            hint: Table is reserved; as a name it is written "Table\"""",
        ),
        (
            "CREATE DATA_SINK k WITH k2",
            """\
            SyntaxException: line 1:24 found 'k2', expected quoted URI
              CREATE DATA_SINK k WITH k2
                                      ^^
            hint: write the URI in single quotes: 'kafka://host:9092?topic=name'""",
        ),
        (
            "CREATE DATA_SINK k WITH 'a://b' AND c = lz4",
            """\
            SyntaxException: line 1:40 found a word, expected string, number, TRUE or FALSE
              CREATE DATA_SINK k WITH 'a://b' AND c = ***
                                                      ^^^
            hint: write a text in single quotes""",
        ),
        (
            "CREATE DATA_SINK k WITH 'a://b' AND c = 1 AND c = 2",
            """\
            SyntaxException: line 1:46 option c is given twice
              CREATE DATA_SINK k WITH 'a://b' AND c = * AND c = *
                                                            ^""",
        ),
        (
            'DROP DATA_SINK ""',
            """\
            SyntaxException: line 1:15 a name cannot be empty
              DROP DATA_SINK ""
                             ^^""",
        ),
    ],
)
def test_error(text: str, expected: str) -> None:
    """An error shows the place, what was found, what was expected, and what was meant."""
    with pytest.raises(StatementSyntaxError) as caught:
        list(parse_script(text))

    assert textwrap.dedent(expected) == str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", STARTERS),
        ("DESC DATA_SINKS;", STARTERS),
        ("ALTER DATA_SINK k", ("WITH",)),
        ("ALTER DATA_SINK k WITH", ("quoted URI", "option name")),
        ("ALTER DATA_SINK k WITH 'a://b'", ("AND", ";")),
        ("ALTER DATA_SINK k WITH a =", ("NULL", "string", "number", "TRUE", "FALSE")),
        ("ALTER DATA_SOURCE cdc ON TABLE a", (".", "SET", "WITH")),
        ("ALTER DATA_SOURCE IF EXISTS cdc ON TABLE a.b", ("WITH",)),
        ("ALTER DATA_SOURCE cdc ON TABLE a.b WITH", ("sink name", "option name")),
        ("ALTER DATA_SOURCE cdc ON TABLE a.b WITH k", ("AND", ";")),
        ("ALTER DATA_SOURCE cdc ON TABLE a.b SET POSITION", ("=",)),
        ("ALTER DATA_SOURCE cdc ON TABLE a.b SET POSITION =", ("quoted position",)),
        ("ALTER DATA_SOURCE cdc ON TABLE a.b SET POSITION = 'x'", ("FOR", "DRY", ";")),
        ("ALTER DATA_SOURCE cdc ON TABLE a.b SET POSITION = 'x' FOR SPLIT", ("quoted split",)),
        ("SHOW", ("STATUS", "LAG", "SPLITS", "OFFSETS", "ERRORS", "MODE", "SNAPSHOTS", "RUNS")),
        ("SHOW MODE", ("CHANGES", "FOR", ";")),
        ("ALTER DATA_SOURCE cdc ON TABLE t SET", ("MODE", "POSITION")),
        ("ALTER DATA_SOURCE cdc ON TABLE t SET MODE = 'log'", ("FOR", "WAIT", ";")),
        ("SHOW LAG", ("FOR", ";")),
        ("PAUSE", ("RUN", "SNAPSHOT", "DATA_SOURCE")),
        ("RESTART", ("DATA_SOURCE",)),
        ("STOP SNAPSHOT", ("quoted run",)),
        ("ACCEPT GAP", ("quoted gap",)),
        ("ACCEPT GAP 'a' FOR JOB 'j'", ("EXPIRE", "ASSUME", ";")),
        ("REDRIVE", ("DEAD_LETTERS", "DEAD_LETTER")),
        ("REDRIVE DEAD_LETTER 7 FOR JOB", ("quoted job",)),
        ("SNAPSHOT DATA_SOURCE cdc ON TABLE a.b", ("WHERE", "WITH", ";")),
        ("REPLAY DATA_SOURCE cdc ON TABLE a.b", ("FROM", "TO", "WITH", ";")),
        ("RECONCILE DATA_SOURCE l FROM 1", ("TO", "WITH", ";")),
        ("DROP", ("DATA_SINK", "DATA_SOURCE", "RUN", "CDC")),
        ("VALIDATE", ("DATA_SINK",)),
        ("PREVIEW DATA_SOURCE cdc ON TABLE a.b", ("LIMIT", ";")),
        ("CREATE", ("DATA_SINK", "DATA_SOURCE", "CDC")),
        ("DESC", ("DATA_SINKS", "DATA_SOURCES", "CDC", "DATA_SINK", "DATA_SOURCE")),
        ("CREATE CDC h ON", ("TABLE", "table name")),
        ("CREATE CDC h ON a.b INCLUDE (", ("CHANGE", "PRE", "POST", "LATEST", "ALL")),
        ("CREATE CDC h ON a.b", ("INCLUDE", "WITH", "SALT_BUCKETS", "INDEX", ";")),
        ("ALTER CDC h", ("INCLUDE", "WITH")),
        ("DROP CDC h", ("ON", "PURGE", ";")),
        ("SELECT *", ("FROM",)),
        ("SELECT * FROM h", ("WHERE", "ORDER", "LIMIT", "AFTER", "LATEST", ";")),
        ("SELECT * FROM h WHERE a", ("(", "IN", ">", "<", "=")),
        ("TAIL h", ("JSON", "FROM", "AFTER", "LIMIT", "WAIT", ";")),
        ("POLL h", ("JSON", "EVERY")),
        ("CREATE DATA_SINK IF", ("NOT",)),
        ("CREATE DATA_SINK IF NOT", ("EXISTS",)),
        ("CREATE DATA_SINK k", ("WITH",)),
        ("CREATE DATA_SINK k WITH 'a://b'", ("AND", ";")),
        ("CREATE DATA_SINK k WITH 'a://b' AND", ("option name",)),
        ("CREATE DATA_SINK k WITH 'a://b' AND x", (".", "=")),
        ("CREATE DATA_SINK k WITH 'a://b' AND x.", ("option name",)),
        ("CREATE DATA_SINK k WITH 'a://b' AND \"x\"", ("=",)),
        ("DROP DATA_SOURCE cdc", ("ON", ";")),
        ("DROP DATA_SOURCE cdc ON", ("TABLE",)),
        ("DROP DATA_SOURCE cdc ON TABLE a", (".", ";")),
        ("DROP DATA_SOURCE cdc ON TABLE a.", ("table name",)),
        ("CREATE DATA_SINK k WITH 'a://b' AND x =", ("string", "number", "TRUE", "FALSE")),
        ("DESC DATA_SINK k", ("AS", ";")),
        ("DESC DATA_SINK k AS", ("CONFIG",)),
    ],
)
def test_expected_set(text: str, expected: tuple[str, ...]) -> None:
    """After any beginning, an error and the completion know everything that could follow."""
    misfit = "=" if text.endswith("=") else "1"
    with pytest.raises(StatementSyntaxError) as caught:
        list(parse_script(f"{text} {misfit}"))

    assert expected == caught.value.expected
    assert expected == outlook(text).expected


@pytest.mark.parametrize("text", ["CREATE TABLE ", "DROP DATA_SINK k k ", "'", "\x00", "1 DESC"])
def test_no_outlook(text: str) -> None:
    """What is not a beginning of a statement has nothing that could follow."""
    assert () == outlook(text).expected


def test_outlook_at_a_value() -> None:
    """Where a value is expected, the outlook says of which option, and where the URI stands."""
    text = "DESC DATA_SINKS; CREATE DATA_SINK k WITH 'a://b' AND x.y = 1 AND z ="
    found = outlook(text)

    assert "z" == found.option
    assert {"sink", "uri", "x.y", "z"} == set(found.spans)


@pytest.mark.parametrize("limit", ["0", "-1", str(PREVIEW_MAX + 1), "1e2", "1.0", "9" * 100_000])
def test_limit(limit: str) -> None:
    """LIMIT is a whole number within its bounds."""
    with pytest.raises(StatementSyntaxError, match="whole number from 1 to 1000"):
        parse_statement(f"PREVIEW DATA_SOURCE cdc ON TABLE a.b LIMIT {limit}")


def test_script() -> None:
    """Statements before an error are yielded; empty ones are nothing."""
    script = parse_script(";; DESC DATA_SINKS;\nDROP DATA_SINK k; ; DROP 'x'; DESC DATA_SOURCES")

    first, second = next(script), next(script)

    assert [DescribeSinks(), DropSink(name="k")] == [first.statement, second.statement]
    assert ["line 1:3", "line 2:0"] == [str(first.place()), str(second.place())]
    with pytest.raises(StatementSyntaxError, match=r"line 2:25"):
        next(script)


def test_places() -> None:
    """A statement knows where each of its parts stands."""
    text = "CREATE DATA_SINK k WITH 'a://b' AND x.y = 1; CREATE DATA_SOURCE cdc ON TABLE a.b WITH k"
    sink, source = parse_script(text)

    for parsed, key, part in [
        (sink, "sink", "k"),
        (sink, "uri", "'a://b'"),
        (sink, "x.y", "x.y"),
        (sink, "other", "'a://b'"),
        (sink, "", "CREATE"),
        (source, "source", "cdc"),
        (source, "table", "a.b"),
        (source, "other", "CREATE"),
    ]:
        place = parsed.place(key)
        assert (key, part) == (key, text[place.column :][: place.excerpt.count("^")])


@pytest.mark.parametrize("text", ["", "DESC DATA_SINKS; DESC DATA_SINKS", " -- a"])
def test_one_statement(text: str) -> None:
    """Where one statement is wanted, none or two are an error."""
    with pytest.raises(StatementSyntaxError, match="expected one statement"):
        parse_statement(text)


def test_options_max() -> None:
    """The greatest number of options is accepted; one more is an error."""
    fits = "CREATE DATA_SINK k WITH 'a://b'" + "".join(
        f" AND x{number} = 1" for number in range(OPTIONS_MAX)
    )

    parse_statement(fits)
    with pytest.raises(StatementSyntaxError, match="more than 256 options"):
        parse_statement(f"{fits} AND y = 1")


@pytest.mark.parametrize(
    "form",
    [
        "DROP DATA_SINK {}",
        'DROP DATA_SINK "{}"',
        "CREATE DATA_SOURCE cdc ON TABLE a.{} WITH k",
        "CREATE DATA_SINK k WITH 'a://b' AND {} = 1",
        "CREATE DATA_SINK k WITH 'a://b' AND a{}.b = 1",
    ],
)
def test_name_length(form: str) -> None:
    """The longest name is read; one character more is an error."""
    fits = form.format("x" * (NAME_CHARS_MAX - 3 if ".b" in form else NAME_CHARS_MAX))

    parse_statement(fits)
    with pytest.raises(StatementSyntaxError, match="at most 255 characters"):
        parse_statement(fits.replace("x", "xx", 1))


@pytest.mark.parametrize("value", ["'canary'", "canary", "9canary", '"can canary"', "a canary"])
@pytest.mark.parametrize("rest", ["", " x", "; y", " AND"])
def test_no_secret_in_errors(value: str, rest: str) -> None:
    """For each mistake in a statement, and wherever it is cut off, no error shows a secret."""
    text = f"CREATE DATA_SINK k WITH 'kafka://h' AND sasl.password = {value}{rest}"
    for end in range(len(text) + 1):
        for attempt in (text[:end], text[:end].replace("'kafka", "kafka"), f"{text[:end]} é"):
            try:
                list(parse_script(attempt))
            except StatementSyntaxError as error:
                shown = str(error)
            else:
                shown = ""
            assert "cana" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "CREATE DATA_SINK k WITH 'kafka://h:1' AND topic = 'x' AND security.protocol = 'SASL_SSL'",
        "CREATE DATA_SOURCE IF NOT EXISTS cdc ON TABLE shop.orders WITH k AND job = 'j'",
        "ALTER DATA_SOURCE cdc ON TABLE shop.orders SET POSITION = '9:1' FOR SPLIT '3' DRY RUN",
    ],
)
def test_parse_cost(text: str) -> None:
    """Parsing a statement enters at most 40 functions for each of its words."""
    parse_statement(text)  # What is made once is not counted.
    assert 40 * len(shlex.split(text)) > calls_of(lambda: parse_statement(text))


_PIECES = [
    "CREATE", "DROP", "ALTER", "SHOW", "LAG", "FOR", "SET", "POSITION", "SPLIT", "NULL", "PAUSE",
    "PREVIEW", "LIMIT", "DRY", "RUN", "DESC", "DATA_SINK", "DATA_SINKS", "DATA_SOURCE", "IF",
    "MODE", "NODE",
    "NOT", "EXISTS", "WITH", "AND", "ON", "TABLE", "AS", "CONFIG", "cdc",
    "k", "a.b", "=", ".", ";", "'x'", '"y"',
    "1", "true", "kafka://h", "--", "/*", "*/", "//", "'", '"', "\n", " ", "é", "\x00",
]  # fmt: skip


def statements_in(text: str) -> list[Statement]:
    """Return the statements of *text*; none if it is refused by our named error."""
    with contextlib.suppress(StatementSyntaxError):
        return [parsed.statement for parsed in parse_script(text)]
    return []


@given(st.text() | st.lists(st.sampled_from(_PIECES)).map(" ".join))
@example("'" * 10_001)
@example('"' * 10_001)
@example("/*" * 10_000)
@example("CREATE " * 1_000)
@example(";" * 10_000)
def test_any_text(text: str) -> None:
    """Any text is statements or our named error."""
    found = statements_in(text)
    assert found == [parse_statement(format_statement(each)) for each in found]


@given(statements, st.data())
def test_damaged_statement(statement: Statement, data: st.DataObject) -> None:
    """A statement with a piece cut out and one put in is statements or our named error."""
    text = format_statement(statement)
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    found = statements_in(text[:start] + data.draw(st.text(max_size=3)) + text[end:])
    assert found == [parse_statement(format_statement(each)) for each in found]
