"""From samples to figures: what is divided by what, beside which bound, and what is too much."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from bench.measure import RECORDS, WORKERS, Samples
from bench.recordings import Recording
from headrace.sources.cassandra.agreement.rules import RECORD_BYTES

_MB: Final = 1_000_000
_NS_PER_US: Final = 1_000
_PERCENT: Final = 100
_LZ4_THROUGHPUT_MIN: Final = 0.6  # Of that of an uncompressed log.
_COPIES: Final = 3  # Of a mutation in the wide case.
_CROSSED_TIMES_MAX: Final = 1.3  # Of a mutation's bytes, and so many besides.
_CROSSED_MORE_MAX: Final = 60
_TIMES: Final = ("ns", "µs")
_KINDS: Final = {"update": "the same of an UPDATE", "expiring": "the same of an insert with a TTL"}
_MD5_BLOCK_BYTES: Final = 64
_MD5_BLOCKS: Final = 6  # That 323 bytes fill, with their padding.
MD5_NS: Final = 491.0  # Of these, in the run in which what the goals stand on was measured.


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, with its bounds. `goal` and `alarm` are in `unit`; None is not a limit."""

    title: str
    unit: str
    runs: Sequence[float]
    bounds: Mapping[str, float]
    goal: float | None = None
    alarm: float | None = None

    @property
    def measured(self) -> float:
        """The median of all runs."""
        return median(self.runs)

    @property
    def least(self) -> float:
        """The least of all runs: nearest to what the code costs, for a machine only adds to it."""
        return min(self.runs)

    @property
    def alarming(self) -> bool:
        """Whether every run is beyond its alarm."""
        return self.alarm is not None and self.least > self.alarm

    @property
    def misses(self) -> bool:
        """Whether every run is beyond its goal; a goal is for the machine on which it was set."""
        return self.goal is not None and self.least > self.goal

    def where(self, slower: float) -> "Figure":
        """Return this figure, with the alarm of a machine that is so many times slower."""
        if self.alarm is None or self.unit not in _TIMES:
            return self
        return replace(self, alarm=float(f"{self.alarm * slower:.2g}"))


def figures_of(samples: Samples, recordings: Mapping[str, Recording]) -> Sequence[Figure]:
    """Return all figures, in the order in which they are printed."""
    read = _Reading(samples, recordings)
    machine = _machine(read)
    slower = max(1.0, machine.least / MD5_NS)
    figures = (_hot_path, _encoding, _workers, _tails, _many, _network, _bulk, _memory)
    return [machine, *(each.where(slower) for made in figures for each in made(read))]


def md5_ns(bare: Mapping[str, float]) -> float:
    """Return what the MD5 of 323 bytes takes, of what the probe `bare` measured."""
    return _MD5_BLOCKS * bare["md5_ns"] / bare["bytes"] * _MD5_BLOCK_BYTES


def _machine(read: "_Reading") -> Figure:
    """Return how fast the machine is, by what hangs on neither our code nor its memory."""
    return Figure(
        "this machine: MD5 of 323 bytes",
        "ns",
        read.numbers("wide.bare", md5_ns),
        {"where goals and alarms were set": MD5_NS},
    )


def _hot_path(read: "_Reading") -> Sequence[Figure]:
    wide, narrow = read.mutation_bytes("wide"), read.mutation_bytes("narrow")
    first = read.recordings["wide"].mutations
    return [
        Figure(
            f"frame, CRC, token, digest: an entry of {wide} bytes",
            "ns",
            read.per_entry("wide.intake"),
            read.bare("wide", 1, 1) | {"framing": median(read.per_entry("wide.frame"))},
            goal=300,
            alarm=500,
        ),
        Figure(
            f"frame, CRC, token, digest: an entry of {narrow} bytes",
            "ns",
            read.per_entry("narrow.intake"),
            read.bare("narrow", 1, 1) | {"framing": median(read.per_entry("narrow.frame"))},
            goal=300,
            alarm=500,
        ),
        *(_lz4(read, name) for name in ("wide", "narrow")),
        _agreement(read, 100_000, goal=150, alarm=300),
        _agreement(read, 1_000_000, goal=250, alarm=500),
        Figure(
            "a look-up among 400,000 pending",
            "ns",
            read.numbers("look_up", lambda s: s["look_up_ns"]),
            {"the loop without": median(read.numbers("look_up", lambda s: s["without_ns"]))},
            goal=300,
            alarm=1_000,
        ),
        Figure(
            f"three copies of 13 columns -> one Avro record, after {first:,} of them",
            "µs",
            read.numbers("long.readers", _timed_us),
            read.bare("wide", _COPIES, _NS_PER_US)
            | {"without positions": median(read.numbers("long.readers", _passing_us))},
            goal=1,
            alarm=2,
        ),
        Figure(
            "the same among 1,000,000 records, by what agreement takes more there",
            "µs",
            _among_more(read),
            {"agreement's part, of three copies": median(_agreement_more_us(read))},
            goal=1.8,
        ),
        Figure(
            "the same, from the start, with all that is made once",
            "µs",
            read.per_change("wide.readers"),
            read.bare("wide", _COPIES, _NS_PER_US),
            alarm=2,
        ),
        *_narrow(read),
        Figure(
            "decode and fold: a cell of a row of 200 columns",
            "µs",
            read.per_cell("fold.200"),
            {"of 20 columns": median(read.per_cell("fold.20"))},
            alarm=20,
        ),
    ]


def _narrow(read: "_Reading") -> Sequence[Figure]:
    """Return one copy as the bound was measured, and with digest and agreement."""
    return [
        Figure(
            "one copy of 4 columns, framed and encoded -> one Avro record",
            "µs",
            read.framed_and_encoded("narrow"),
            read.bare("narrow", 1, _NS_PER_US),
            goal=0.3,
            alarm=0.5,
        ),
        Figure(
            "one copy of 4 columns, digest and agreement too -> one Avro record",
            "µs",
            read.per_change("narrow.readers"),
            read.bare("narrow", 1, _NS_PER_US),
        ),
    ]


def _passing_us(sample: dict[str, float]) -> float:
    """Return the CPU of a change where no positions were made; of few data they exist not."""
    if not sample["passed"]:
        return _timed_us(sample)
    return sample["passes_ns"] / sample["passed"] / _NS_PER_US


def _among_more(read: "_Reading") -> Sequence[float]:
    """Return what three copies take among a million records, run by run."""
    among_few = read.numbers("long.readers", _passing_us)
    return [a + b for a, b in zip(among_few, _agreement_more_us(read), strict=True)]


def _agreement_more_us(read: "_Reading") -> Sequence[float]:
    """Return what agreement takes more for three copies among ten times the records."""
    few, many = (read.numbers(f"agreement.{n}", lambda s: s["agreement_ns"]) for n in RECORDS)
    return [_COPIES * (b - a) / _NS_PER_US for a, b in zip(few, many, strict=True)]


def _timed_us(sample: dict[str, float]) -> float:
    return sample["cpu_ns"] / sample["timed"] / _NS_PER_US


def _encoding(read: "_Reading") -> Sequence[Figure]:
    """Return what encoding takes, beside fastavro's, and what the sink adds to its client."""
    taken = {
        way: read.numbers("wide.encode", lambda s, way=way: s[way] / _NS_PER_US)  # type: ignore[misc]
        for way in ("cep44", "flat", "debezium", "json", "types", "fastavro")
    }
    named = (
        median(read.numbers("wide.identify", lambda s: s["cpu_ns"] / s["mutations"])) / _NS_PER_US
    )
    produce = read.per_change("kafka.produce")
    deliver = read.per_change("kafka.deliver")
    times = [a / b for a, b in zip(taken["fastavro"], taken["cep44"], strict=True)]
    return [
        Figure(
            "13 columns from cell bytes to Avro, envelope cep44",
            "µs",
            taken["cep44"],
            {"fastavro, from dictionaries": median(taken["fastavro"])},
        ),
        *(_kind(read, kind, title) for kind, title in _KINDS.items()),
        # As its bound was measured: SHA-256 alone took nearly as long as the goal.
        Figure(
            "the same, without the id of its mutation",
            "µs",
            [each - named for each in taken["cep44"]],
            {f"SHA-256 of {read.mutation_bytes('wide')} bytes": named},
            goal=0.3,
        ),
        Figure("fastavro's time, of that", "times", times, {"at least": 30}),
        *(
            Figure(
                f"the same, envelope {name}",
                "µs",
                taken[name],
                {"cep44": median(taken["cep44"])},
                goal=goal,
            )
            for name, goal in (("flat", None), ("debezium", 1.0))
        ),
        Figure(
            "the same, envelope cep44 in JSON",
            "µs",
            taken["json"],
            {"in Avro": median(taken["cep44"])},
        ),
        Figure(
            "the same, envelope cep44, types of CEP-44's text",
            "µs",
            taken["types"],
            {"lossless": median(taken["cep44"])},
        ),
        Figure(
            "what the sink adds to a bare produce with the same headers and a callback",
            "µs",
            [a - b for a, b in zip(deliver, produce, strict=True)],
            {"bare produce": median(produce)},
            goal=0.3,
        ),
    ]


def _lz4(read: "_Reading", name: str) -> Figure:
    """Return what the same takes from a compressed log, of what it takes from one that is not."""
    plain = median(read.per_entry(f"{name}.intake"))
    compressed = read.per_entry(f"{name}.lz4")
    return Figure(
        f"the same in LZ4, of its CPU: an entry of {read.mutation_bytes(name)} bytes",
        "%",
        [_PERCENT * each / plain for each in compressed],
        {"LZ4, ns": median(compressed), "uncompressed, ns": plain},
        goal=round(_PERCENT / _LZ4_THROUGHPUT_MIN),
    )


def _kind(read: "_Reading", kind: str, title: str) -> Figure:
    """Return what rows of a kind take to encode, of what plain inserts take."""
    plain = read.numbers("rows.insert", lambda s: s["cpu_ns"] / s["changes"])
    taken = read.numbers(f"rows.{kind}", lambda s: s["cpu_ns"] / s["changes"])
    return Figure(
        f"{title}, of the CPU of a plain insert",
        "%",
        [_PERCENT * a / b for a, b in zip(taken, plain, strict=True)],
        {"ns": median(taken), "a plain insert, ns": median(plain)},
        goal=110,
        alarm=130,
    )


def _agreement(read: "_Reading", records: int, *, goal: float, alarm: float) -> Figure:
    name = f"agreement.{records}"
    return Figure(
        f"agreement alone: an entry, {records:,} records in memory",
        "ns",
        read.numbers(name, lambda s: s["agreement_ns"]),
        {"the loop without": median(read.numbers(name, lambda s: s["without_ns"]))},
        goal=goal,
        alarm=alarm,
    )


def _workers(read: "_Reading") -> Sequence[Figure]:
    produce = read.per_change("kafka.produce")
    return [
        Figure(
            "the same three copies, whole worker, null sink",
            "µs",
            read.above_start("wide"),
            {"without runtime": median(read.per_change("wide.readers"))},
            goal=1.4,
            alarm=2.6,
        ),
        Figure(
            "the same one copy, whole worker, null sink",
            "µs",
            read.above_start("narrow"),
            {"without runtime": median(read.per_change("narrow.readers"))},
        ),
        Figure(
            "three copies of 13 columns -> Kafka, whole worker",
            "µs",
            read.above_start("kafka"),
            {"bare produce": median(produce)},
            goal=3,
            alarm=6,
        ),
        Figure(
            "the same with a field masked, of its CPU",
            "times",
            [
                masked / plain
                for masked, plain in zip(
                    read.above_start("masked"), read.above_start("kafka"), strict=True
                )
            ],
            {"with, µs": median(read.above_start("masked"))},
            goal=1.5,
            alarm=2,
        ),
        Figure(
            "three copies of 13 columns -> lines of change JSON, whole worker",
            "µs",
            read.above_start("files"),
            {"null sink": median(read.above_start("wide"))},
            goal=6,
            alarm=10,
        ),
    ]


def _tails(read: "_Reading") -> Sequence[Figure]:
    """Return what a worker takes while nodes write little, or nothing; its tick is the default."""
    figures = []
    for rate, goal, alarm in ((1_000, 15, 60), (5_000, 8, 20)):
        figures.append(
            Figure(
                f"a change while three nodes log {rate:,} a second, 8 splits, null sink",
                "µs",
                read.per_change(f"tail.log.{rate}"),
                {"from a backlog": median(read.above_start("wide"))},
                goal=goal,
                alarm=alarm,
            )
        )
    slow, fast = (read.per_change(f"tail.{mode}.1000") for mode in ("log", "realtime"))
    times = [realtime / log for log, realtime in zip(slow, fast, strict=True)]
    beside = {"µs": median(fast), "in mode log": median(slow)}
    title = "a change at 1,000 a second in mode realtime"
    figures.append(Figure(title, "times mode log", times, beside, goal=3, alarm=6))
    news = [
        (each["cpu_ns"] - each["idle_cpu_ns"]) / each["changes"] / _NS_PER_US
        for each in read.samples["news"]
    ]
    title = "a split with something new: 1,000 changes a second in 256 splits, less idle"
    figures.append(Figure(title, "µs", news, {"8 splits": median(slow)}, goal=1, alarm=800))
    for title, name, goal in (
        ("idle: 3 logs, 8 splits", "tail.log.1000", 1),
        ("idle in mode realtime: 3 logs, 8 splits", "tail.realtime.1000", 1),
        ("idle in mode realtime: 64 logs, 64 splits", "still", 3),
    ):
        idle = read.numbers(name, _idle_percent)
        figures.append(Figure(title, "% of a core", idle, {}, goal=goal, alarm=3 * goal))
    return figures


def _many(read: "_Reading") -> Sequence[Figure]:
    """Return what many splits, tables and logs take; beside it what fewer splits and logs do."""
    return [
        _splits(read, "idle from the first second: 3 logs, 1,024 splits", _IDLE, goal=2, alarm=8),
        _splits(read, "the same: a tick of the thread that reads", _TICK, goal=10, alarm=600),
        _splits(read, "the same while a log is away", _AWAY, goal=None, alarm=1_000),
        _splits(read, "to open a split, with what a worker starts with", _OPENING, None, 2_500),
        Figure(
            "a table, from its schema to its first change",
            "µs",
            read.each_table("cpu_ns", _NS_PER_US),
            {},
            goal=300,
            alarm=900,
        ),
        Figure("the same", "KB", read.each_table("memory_bytes", 1_000), {}, goal=30, alarm=40),
        Figure(
            "6,000 changes of 64 logs in 64 splits, whole worker with its start",
            "% of that of 3 logs",
            [
                _PERCENT * many["cpu_ns"] / few["cpu_ns"]
                for many, few in zip(read.samples["rings.64"], read.samples["rings.3"], strict=True)
            ],
            {f"{logs} logs, ms": median(read.numbers(f"rings.{logs}", _ms)) for logs in (3, 64)},
            goal=300,
            alarm=550,
        ),
    ]


def _splits(
    read: "_Reading", title: str, measured: "_Measured", goal: float | None, alarm: float
) -> Figure:
    unit, of = measured
    beside = {"128 splits": median(read.numbers("splits.128", of))}
    return Figure(title, unit, read.numbers("splits.1024", of), beside, goal, alarm)


def _idle_percent(sample: dict[str, float]) -> float:
    return _PERCENT * sample["idle_cpu_ns"] / sample["idle_ns"]


def _ms(sample: dict[str, float]) -> float:
    return sample["cpu_ns"] / _NS_PER_US / 1_000


_Measured = tuple[str, Callable[[dict[str, float]], float]]
_IDLE: Final[_Measured] = "% of a core", _idle_percent
_TICK: Final[_Measured] = "µs", lambda s: s["tick_ns"] / _NS_PER_US
_AWAY: Final[_Measured] = "µs", lambda s: s["away_tick_ns"] / _NS_PER_US
_OPENING: Final[_Measured] = "µs", lambda s: s["opening_ns"] / s["splits"] / _NS_PER_US


def _network(read: "_Reading") -> Sequence[Figure]:
    """Return what comes from agents, of three copies and of one, and what it takes them.

    The CPU is above what agents and reader take to start, to connect and to end, with empty logs.
    """
    figures = []
    for name, copies in (("wide", "three copies"), ("narrow", "one copy")):
        size = read.mutation_bytes(name)
        most = _CROSSED_TIMES_MAX * size + (0 if name == "wide" else _CROSSED_MORE_MAX)
        title = f"through agents, {copies} of {size} bytes: crossed the network for a mutation"
        crossed = read.numbers(f"{name}.network", lambda s: s["crossed_bytes"] / s["changes"])
        is_wide = name == "wide"
        figures += [
            Figure(title, "bytes", crossed, {"its bytes once": size}, goal=most, alarm=most),
            Figure(
                "the same: CPU of the reader",
                "µs",
                read.through_agents(name, "cpu_ns"),
                {"from directories": median(read.per_change(f"{name}.readers"))},
                goal=3 if is_wide else None,
                alarm=4.5 if is_wide else None,
            ),
            Figure(
                "the same: CPU of the agent that takes most",
                "µs",
                read.through_agents(name, "agent_ns_max"),
                {"with its start": median(read.numbers(f"{name}.network", _agent_us))},
                goal=1 if is_wide else None,
                alarm=1.5 if is_wide else None,
            ),
        ]
    return [*figures[:3], *_shared(read), *figures[3:]]


def _agent_us(sample: dict[str, float]) -> float:
    return sample["agent_ns_max"] / sample["changes"] / _NS_PER_US


def _shared(read: "_Reading") -> Sequence[Figure]:
    """Return what three copies take of all processes, and what eight workers are to an agent."""
    together, agents = (read.through_agents("wide", key) for key in ("cpu_ns", "agents_ns"))
    one, eight = (
        [
            taken / crossed
            for taken, crossed in zip(
                read.through_agents(name, "agents_ns"),
                read.numbers(f"{name}.network", lambda s: s["crossed_bytes"] / s["changes"]),
                strict=True,
            )
        ]
        for name in ("wide", "shared")
    )
    return [
        Figure(
            "the same: CPU of the reader and of all three agents",
            "µs",
            [a + b for a, b in zip(together, agents, strict=True)],
            {"from directories": median(read.per_change("wide.readers"))},
            goal=6,
            alarm=9,
        ),
        Figure(
            f"the same agents for {WORKERS} workers: CPU for a byte, of that for one worker",
            "times",
            [a / b for a, b in zip(eight, one, strict=True)],
            {
                "ns a byte": _NS_PER_US * median(eight),
                "for one worker": _NS_PER_US * median(one),
            },
            goal=1.5,
            alarm=2,
        ),
    ]


def _bulk(read: "_Reading") -> Sequence[Figure]:
    """Return what bulk work takes; each of its four shards looks at all entries of all logs."""
    return [
        Figure(
            "one log of 13 columns -> Arrow, a column for each",
            "µs",
            read.per_change("bulk.typed"),
            read.bare("wide", 1, _NS_PER_US),
            goal=2,
            alarm=4,
        ),
        Figure(
            "one log of 13 columns -> Arrow columns of its messages",
            "µs",
            read.per_change("bulk.arrow"),
            read.bare("wide", 1, _NS_PER_US),
            goal=2,
            alarm=4,
        ),
        Figure(
            "replay of three copies of 13 columns, four shards -> Parquet",
            "µs",
            read.per_change("bulk.parquet"),
            {"to records": median(read.per_change("wide.readers"))},
            goal=6,
            alarm=12,
        ),
        Figure(
            "the same -> Kafka",
            "µs",
            read.per_change("bulk.kafka"),
            {"bare produce": median(read.per_change("kafka.produce"))},
            goal=12,
            alarm=20,
        ),
    ]


def _memory(read: "_Reading") -> Sequence[Figure]:
    """Return what workers had resident at most, also without the records that they remember."""
    figures = []
    for name, sink in (("wide", "null"), ("kafka", "Kafka"), ("narrow", "null")):
        records = read.recordings["narrow" if name == "narrow" else "wide"].mutations
        title = f"memory, {records:,} {name.replace('kafka', 'wide')} mutations, {sink} sink"
        most = read.numbers(f"{name}.run", lambda s: s["memory_bytes"] / _MB)
        libraries = read.numbers(f"{name}.imports", lambda s: s["memory_bytes"] / _MB)
        bounds = {"interpreter and libraries": median(libraries)}
        if name != "narrow":  # There one copy is enough, and most records are let go soon.
            kept = records * RECORD_BYTES / _MB
            above = [a - b - kept for a, b in zip(most, libraries, strict=True)]
            beside = {"records": kept}
            # The bound knows no Kafka, whose client has what is on its way in a form of its own.
            goal = 16 if sink == "null" else None
            figures.append(
                Figure(f"{title}, above libraries and records", "MB", above, beside, goal, 64)
            )
        figures.append(Figure(f"{title}, in all", "MB", most, bounds, alarm=150))
    return figures


@dataclass(frozen=True, slots=True)
class _Reading:
    samples: Samples
    recordings: Mapping[str, Recording]

    def mutation_bytes(self, name: str) -> int:
        return round(self.recordings[name].mutation_bytes)

    def numbers(self, name: str, number: Callable[[dict[str, float]], float]) -> Sequence[float]:
        return [number(sample) for sample in self.samples[name]]

    def per_entry(self, name: str) -> Sequence[float]:
        return self.numbers(name, lambda s: s["cpu_ns"] / s["entries"])

    def per_change(self, name: str) -> Sequence[float]:
        return self.numbers(name, lambda s: s["cpu_ns"] / s["changes"] / _NS_PER_US)

    def per_cell(self, name: str) -> Sequence[float]:
        return self.numbers(name, lambda s: s["cpu_ns"] / s["cells"] / _NS_PER_US)

    def framed_and_encoded(self, name: str) -> Sequence[float]:
        """Return the CPU per change of framing a log by itself and of encoding what was agreed."""
        framing = median(self.per_entry(f"{name}.frame"))
        encoding = self.numbers(f"{name}.readers", lambda s: s["encode_ns"] / s["changes"])
        return [(framing + each) / _NS_PER_US for each in encoding]

    def above_start(self, name: str) -> Sequence[float]:
        """Return a worker's CPU per change, less what it takes to start and end."""
        pairs = zip(self.samples[f"{name}.run"], self.samples[f"{name}.start"], strict=True)
        return [
            (run["cpu_ns"] - start["cpu_ns"]) / run["changes"] / _NS_PER_US for run, start in pairs
        ]

    def each_table(self, key: str, unit: int) -> Sequence[float]:
        """Return what one table more takes, of many and of few."""
        pairs = zip(self.samples["tables.2000"], self.samples["tables.200"], strict=True)
        return [
            (many[key] - few[key]) / (many["changes"] - few["changes"]) / unit
            for many, few in pairs
        ]

    def through_agents(self, name: str, key: str) -> Sequence[float]:
        """Return what a change takes of the CPU time *key*, less that with empty logs."""
        pairs = zip(
            self.samples[f"{name}.network"], self.samples[f"{name}.network_start"], strict=True
        )
        return [(run[key] - start[key]) / run["changes"] / _NS_PER_US for run, start in pairs]

    def bare(self, name: str, copies: int, unit_ns: int) -> dict[str, float]:
        """Return what handling the bytes of so many copies takes at least."""
        times = copies / self.recordings[name].mutations / unit_ns
        copy_ns = median(self.numbers(f"{name}.bare", lambda s: s["copy_ns"]))
        crc_ns = median(self.numbers(f"{name}.bare", lambda s: s["crc_ns"]))
        return {"memory copy": copy_ns * times, "CRC by zlib": crc_ns * times}
