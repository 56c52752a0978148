"""Offline help on each statement and each command of the shell."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.connector.language.places import display_width

_TARGET: Final = "cdc ON TABLE keyspace.table"

STATEMENT_TOPICS: Final[Mapping[str, str]] = {
    "CREATE_DATA_SINK": """\
        CREATE DATA_SINK [IF NOT EXISTS] name WITH 'uri' [AND option = value ...];

        A sink is a place that changes go to. The URI's scheme chooses its kind; each key of the
        URI's query, and each AND, is an option. A secret is given as a reference to it.

          CREATE DATA_SINK k WITH 'kafka://k1:9092' AND topic = 'changes'
            AND sasl.password = '${env:HEADRACE_SECRET_KAFKA}';""",
    "ALTER_DATA_SINK": """\
        ALTER DATA_SINK [IF EXISTS] name WITH ['uri'] [AND] option = value [AND ...];

        Changes what it names and leaves the rest; option = null takes an option away.

          ALTER DATA_SINK k WITH topic = 'orders';""",
    "DROP_DATA_SINK": """\
        DROP DATA_SINK [IF EXISTS] name;

        Forgets a sink that no source uses.""",
    "VALIDATE_DATA_SINK": """\
        VALIDATE DATA_SINK name;

        Connects, authenticates, and looks at topic and sizes. Writes nothing.""",
    "CREATE_DATA_SOURCE": f"""\
        CREATE DATA_SOURCE [IF NOT EXISTS] {_TARGET} WITH sink [AND option = value ...];

        CREATE DATA_SOURCE [IF NOT EXISTS] name WITH sink AND plugin = 'files' [AND option = ...];

        A source takes the changes of one table, and a job publishes them in the sink. Without a
        table it has a name, and a plugin whose options it is given; other statements then name it
        without ON TABLE.

          CREATE DATA_SOURCE cdc ON TABLE shop.orders WITH k;
          CREATE DATA_SOURCE lines WITH k AND plugin = 'files' AND path = 'in/*.jsonl';""",
    "ALTER_DATA_SOURCE": f"""\
        ALTER DATA_SOURCE [IF EXISTS] {_TARGET} WITH [sink] [AND] option = value [AND ...];
        ALTER DATA_SOURCE {_TARGET} SET POSITION = 'where' [FOR SPLIT 'name'] [DRY RUN];
        ALTER DATA_SOURCE {_TARGET} SET MODE = 'realtime' | 'log' [FOR NODE 'name'] [WAIT 30s];

        The first gives a source another sink or other options. The second moves it, while it is
        stopped; where is earliest, latest, a time, or what SHOW OFFSETS shows. DRY RUN tells what
        would be read again or passed over, and changes nothing. The third asks its job to read the
        logs as they are written, or at each tick. It does not wait for the outcome, or no longer
        than WAIT says; SHOW MODE CHANGES tells it.

          ALTER DATA_SOURCE cdc ON TABLE shop.orders SET POSITION = 'earliest' DRY RUN;""",
    "DROP_DATA_SOURCE": f"""\
        DROP DATA_SOURCE [IF EXISTS] {_TARGET};

        Forgets a source. What was published stays.""",
    "CREATE_CDC": """\
        CREATE CDC [IF NOT EXISTS] name ON keyspace.table [INCLUDE (CHANGE, PRE, POST, LATEST)]
          [WITH option = value [AND ...]];

        Keeps the history of a table: each change, and images of its row before it (PRE), after it
        (POST), and now (LATEST). SELECT reads it.

          CREATE CDC orders_hist ON shop.orders INCLUDE (CHANGE, PRE, POST)
            WITH retention = '7d';""",
    "ALTER_CDC": """\
        ALTER CDC [IF EXISTS] name [INCLUDE (...)] [WITH option = value [AND ...]];

        Changes what is kept from now on.

          ALTER CDC orders_hist WITH retention = '3d';""",
    "DROP_CDC": """\
        DROP CDC [IF EXISTS] name [PURGE];

        Ends a history. PURGE removes what it has kept.""",
    "SELECT": """\
        SELECT [/*+ CDC_INCLUDE(PRE, POST) */] * | JSON | columns FROM name
          WHERE CDC_TIME() >= time [AND CDC_TIME() < time] [AND PARTITION_ID() IN (...)]
          [AND key = value] [AND op IN ('insert', ...)] [AND WRITE_TIME() >= time]
          [ORDER BY CDC_TIME() DESC] [LIMIT number] [AFTER 'token']
          [LATEST FROM SOURCE [CONSISTENCY level]];

        Shows the changes of a history that arrived in a range of time, in their order. A time is
        '2026-01-31T12:00:00Z', or NOW() - '15m'. An operation is insert, update, delete,
        delete_range, delete_partition, or one of what expired: ttl_delete, ttl_update.

          SELECT * FROM orders_hist WHERE CDC_TIME() >= NOW() - '5m' AND id = 7;""",
    "TAIL": """\
        TAIL name [JSON] [FROM time | AFTER 'token'] [LIMIT number] [WAIT 10s];

        Shows changes as they arrive in a history, until Ctrl-C. Nothing is left out: what is shown
        is final. Outside the interactive shell it gives one answer, and a token for the next.

          TAIL orders_hist;""",
    "POLL": """\
        POLL name [JSON] EVERY 500ms SAFETY 1s [FROM time];

        Shows ranges of time, each after its end and the time of safety, as a loop over a table of
        Phoenix would. A change that is committed later than that is left out; TAIL shows it.

          POLL orders_hist EVERY 500ms SAFETY 1s;""",
    "DESCRIBE": f"""\
        DESCRIBE DATA_SINKS; DESCRIBE DATA_SOURCES; DESCRIBE CDC [name];
        DESCRIBE DATA_SINK name [AS CONFIG];
        DESCRIBE DATA_SOURCE {_TARGET} [AS CONFIG];

        Shows statements that make the objects again, or a connector config. DESC is short for it.
        Anything else that is described is Cassandra's.""",
    "SNAPSHOT": f"""\
        SNAPSHOT | BACKFILL DATA_SOURCE {_TARGET}
          [WHERE TOKEN() > number AND TOKEN() <= number | WHERE key = value [AND ...]]
          [WITH option = value [AND ...]];

        Sends what the table holds now, beside live changes: all of it, a range of tokens, or one
        partition; into the live topics, topics with a suffix, or files. Both words mean the same.
        The answer is the name of the run. SHOW RUNS shows how far it is.

          SNAPSHOT DATA_SOURCE cdc ON TABLE shop.orders WHERE id = 7;
          BACKFILL DATA_SOURCE cdc ON TABLE shop.orders WITH suffix = '.backfill';""",
    "REPLAY": f"""\
        REPLAY DATA_SOURCE {_TARGET} [FROM time] [TO time]
          [WITH option = value [AND ...]];

        Sends changes of the logs again that were written in a range of time: into topics that
        end in .replay, or, WITH into_live = true, into the live ones. A time is
        '2026-01-31T12:00:00Z', or NOW() - '1h'. SHOW RUNS shows how far it is.

          REPLAY DATA_SOURCE cdc ON TABLE shop.orders FROM NOW() - '1d';""",
    "RECONCILE": f"""\
        RECONCILE DATA_SOURCE {_TARGET} [FROM time] [TO time]
          [WITH option = value [AND ...]];

        Compares the logs with the topic, and the topic with the table, and writes a report. Sends
        nothing. SHOW RUNS shows how many differences there are.

          RECONCILE DATA_SOURCE cdc ON TABLE shop.orders FROM NOW() - '1d';""",
    "DROP_RUN": """\
        DROP RUN 'name';

        Forgets a run that is over or failed, and which of its shards are done.""",
    "ACCEPT": """\
        ACCEPT GAP 'name' FOR JOB 'job' [EXPIRE | ASSUME];

        Lets a job continue behind a part of a log that was lost. EXPIRE: mutations that need the
        lost copies expire. ASSUME: they are published as if the log had one.

          ACCEPT GAP 'node2:12' FOR JOB 'orders';""",
    "REDRIVE": """\
        REDRIVE DEAD_LETTERS FOR JOB 'job';
        REDRIVE DEAD_LETTER number FOR JOB 'job';

        Sends records again that could not be processed or delivered, the oldest first. What is
        delivered leaves the quarantine; of the others the answer says why not.""",
    "PAUSE": f"""\
        PAUSE DATA_SOURCE {_TARGET};
        PAUSE RUN 'name';

        Reads nothing more and keeps what is needed to continue at once with RESUME.""",
    "RESUME": f"""\
        RESUME DATA_SOURCE {_TARGET};
        RESUME RUN 'name';

        Continues, a source also after STOP. A run that failed is tried again.""",
    "STOP": f"""\
        STOP DATA_SOURCE {_TARGET};
        STOP RUN 'name';

        Gives back everything but the position, which can be moved then. A run ends.""",
    "RESTART": f"""\
        RESTART DATA_SOURCE {_TARGET};

        Restarts after the last commit.""",
    "SHOW": f"""\
        SHOW STATUS | LAG | SPLITS | OFFSETS | ERRORS [FOR DATA_SOURCE {_TARGET}];
        SHOW MODE | MODE CHANGES | RUNS | SNAPSHOTS [FOR DATA_SOURCE {_TARGET}];

        STATUS: what is wanted, what is so, and why. LAG: how far behind. SPLITS: which worker has
        which part. OFFSETS: what is committed. ERRORS: what failed and what was lost. MODE: how
        logs are read. MODE CHANGES: what became of requests for a mode. RUNS: how far
        snapshots, replays and comparisons are. SNAPSHOTS: the snapshots among them.""",
    "PREVIEW": f"""\
        PREVIEW DATA_SOURCE {_TARGET} [LIMIT number];

        Shows the next changes that would be published. They stay where they are.""",
}

COMMAND_TOPICS: Final[Mapping[str, str]] = {
    "CAPTURE": """\
        CAPTURE 'file'; CAPTURE OFF; CAPTURE

        Appends answers, but no errors, to a file instead of showing them; ends that; asks.""",
    "CLEAR": "CLEAR, CLS\n\nClears the screen.",
    "CONSISTENCY": """\
        CONSISTENCY [level]

        Shows or sets the consistency level of CQL statements.""",
    "EXIT": "EXIT, QUIT\n\nLeaves the shell. So does Ctrl-D.",
    "EXPAND": "EXPAND [ON | OFF]\n\nShows answers row by row.",
    "FORMAT": """\
        FORMAT [table | json | jsonl | csv | expanded]

        Shows or sets the format of answers.""",
    "HELP": "HELP [topic ...], ? [topic ...]\n\nShows this. As in psql there are \\d (sources and "
    "sinks), \\h, \\i, \\q, \\s, \\x and \\timing.",
    "HISTORY": "HISTORY [number]\n\nShows what was entered last.",
    "LOGIN": "LOGIN user\n\nConnects to Cassandra as another user.",
    "PAGING": """\
        PAGING [ON | OFF | rows]

        Shows or sets how many rows are shown at once.""",
    "SET": """\
        SET on_error STOP | CONTINUE

        Whether an error ends a file of statements.""",
    "SOURCE": "SOURCE 'file'\n\nExecutes the statements of a file.",
    "TIMING": "TIMING [ON | OFF]\n\nShows how long each statement took.",
    "TRACING": "TRACING [ON | OFF]\n\nHas Cassandra trace CQL statements.",
    "WATCH": """\
        WATCH seconds statement

        Repeats a statement that changes nothing, until Ctrl-C.""",
}
_ALIASES: Final = {"CLS": "CLEAR", "QUIT": "EXIT", "?": "HELP", "DESC": "DESCRIBE"}
_MARGIN: Final = 2


def overview(width: int) -> str:
    """Return the list of topics, in columns of a terminal *width* columns wide."""
    return (
        f"\nDocumented shell commands:\n===========================\n"
        f"{_columns(sorted([*COMMAND_TOPICS, 'CLS', 'QUIT']), width)}\n"
        f"CQL help topics:\n================\n{_columns(sorted(STATEMENT_TOPICS), width)}"
    )


def topic_text(words: Sequence[str]) -> str:
    """Return the help on the topic that *words* name, or an empty string.

    `DATA_SINK` finds all topics about sinks; `CREATE DATA_SINK` and `CREATE_DATA_SINK` are one.
    """
    wanted = "_".join(word.upper().strip(";") for word in words)
    wanted = _ALIASES.get(wanted, wanted)
    topics = {**COMMAND_TOPICS, **STATEMENT_TOPICS}
    if wanted in topics:
        return _text(topics[wanted])
    found = [name for name in topics if wanted and wanted in name]
    return "\n".join(_text(topics[name]) for name in found)


def _text(text: str) -> str:
    return f"\n{textwrap.dedent(text)}\n"


def _columns(words: Sequence[str], width: int) -> str:
    cell = max(sum(map(display_width, word)) for word in words) + _MARGIN
    per_line = max(1, width // cell)
    lines = [words[at : at + per_line] for at in range(0, len(words), per_line)]
    return "".join("".join(word.ljust(cell) for word in line).rstrip() + "\n" for line in lines)
