"""All statements, as a hypothesis strategy."""

from hypothesis import strategies as st

from headrace.connector.language.cursor import UNSAFE_CHARACTER
from headrace.connector.language.parser import MODES, PREVIEW_MAX, SELECT_MAX
from headrace.connector.language.statements import (
    NO_TABLE,
    POLICIES,
    TOKEN_COLUMN,
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

texts = st.text(max_size=20).filter(lambda text: not UNSAFE_CHARACTER.search(text))
_WORDS = ["k", "Orders", "select", "data_sink", "if", "and", "a b", "it's", 'q"', "//", "a.b"]
names = st.sampled_from(_WORDS) | texts.filter(bool)
values = texts | st.sampled_from(["true", "False", "-1", "1e9", "3.", "007", "NaN", "'", ""])
option_names = st.sampled_from(["security.protocol", "Mixed.Case", "schema", "1"]) | names
options = st.dictionaries(option_names, values, max_size=4).map(lambda d: tuple(d.items()))
changes = st.dictionaries(option_names, values | st.none(), min_size=1, max_size=4).map(
    lambda d: tuple(d.items())
)
tables = st.builds(TableName, st.none() | names, names)
targets = tables | st.just(NO_TABLE)

scopes = st.sets(st.sampled_from(["change", "pre", "post", "latest"])).map(
    lambda found: tuple(s for s in ("change", "pre", "post", "latest") if s in found)
)
durations = st.sampled_from(["500ms", "1h30m", "7d"]) | texts
literals = st.one_of(
    texts,
    st.integers(-(10**18) + 1, 10**18 - 1),
    st.booleans(),
    st.builds(Moment, texts),
    st.builds(Moment, st.none(), st.just("") | durations.filter(bool)),
)
columns = st.sampled_from(["cdc_time()", "partition_id()", "write_time()", "op"]) | names
conditions = st.one_of(
    st.builds(Condition, columns, st.sampled_from(list(Comparison)[:-1]), st.tuples(literals)),
    st.builds(
        Condition,
        columns,
        st.just(Comparison.IN),
        st.lists(literals, min_size=1, max_size=3).map(tuple),
    ),
)
of_histories: st.SearchStrategy[Statement] = st.one_of(
    st.builds(
        CreateCdc,
        name=names,
        table=tables,
        include=scopes,
        options=options,
        if_not_exists=st.booleans(),
    ),
    st.builds(
        AlterCdc,
        name=names,
        include=scopes.filter(bool),
        options=st.just(()) | changes,
        if_exists=st.booleans(),
    ),
    st.builds(AlterCdc, name=names, options=changes, if_exists=st.booleans()),
    st.builds(DropCdc, name=names, if_exists=st.booleans(), purge=st.booleans()),
    st.builds(DescribeCdc, name=st.none() | names),
    st.builds(
        SelectCdc,
        name=names,
        columns=st.lists(names, max_size=3).map(tuple),
        scopes=st.none() | scopes.filter(bool),
        where=st.lists(conditions, max_size=3).map(tuple),
        descending=st.booleans(),
        limit=st.none() | st.integers(1, SELECT_MAX),
        after=texts,
    ),
    st.builds(SelectCdc, name=names, as_json=st.booleans()),
    st.builds(
        TailCdc,
        name=names,
        as_json=st.booleans(),
        since=literals,
        limit=st.none() | st.integers(1, SELECT_MAX),
        wait=durations,
    ),
    st.builds(TailCdc, name=names, after=texts, wait=durations),
    st.builds(
        PollCdc,
        name=names,
        every=durations,
        safety=durations,
        as_json=st.booleans(),
        since=st.none() | literals,
    ),
)
parts = st.one_of(
    st.builds(
        Condition,
        st.just(TOKEN_COLUMN),
        st.sampled_from(list(Comparison)[:4]),
        st.tuples(st.integers(-(1 << 63), (1 << 63) - 1)),
    ),
    st.builds(Condition, names, st.just(Comparison.EQUAL), st.tuples(literals)),
)
statements: st.SearchStrategy[Statement] = st.one_of(
    st.builds(
        SnapshotSource,
        word=names,
        table=targets,
        where=st.lists(parts, max_size=3).map(tuple),
        options=options,
    ),
    st.builds(SteerRun, verb=st.sampled_from([Verb.PAUSE, Verb.RESUME, Verb.STOP]), name=names),
    st.builds(DropRun, name=names),
    st.builds(
        BulkSource,
        verb=st.sampled_from(Bulk),
        word=names,
        table=targets,
        since=st.none() | literals,
        before=st.none() | literals,
        options=options,
    ),
    st.builds(AcceptGap, gap=names, job=names, policy=st.sampled_from(POLICIES)),
    st.builds(RedriveLetters, job=names, number=st.none() | st.integers(0, 10**17)),
    st.builds(CreateSink, name=names, uri=texts, options=options, if_not_exists=st.booleans()),
    st.builds(DropSink, name=names, if_exists=st.booleans()),
    st.builds(DescribeSink, name=names, as_config=st.booleans()),
    st.builds(
        CreateSource,
        word=names,
        table=targets,
        sink=names,
        options=options,
        if_not_exists=st.booleans(),
    ),
    st.builds(DropSource, word=names, table=targets, if_exists=st.booleans()),
    st.builds(DescribeSource, word=names, table=targets, as_config=st.booleans()),
    st.builds(AlterSink, name=names, uri=texts, options=st.just(()) | changes),
    st.builds(AlterSink, name=names, options=changes, if_exists=st.booleans()),
    st.builds(AlterSource, word=names, table=targets, sink=names, options=st.just(()) | changes),
    st.builds(AlterSource, word=names, table=targets, options=changes, if_exists=st.booleans()),
    st.builds(
        SetPosition,
        word=names,
        table=targets,
        position=texts,
        split=st.none() | texts,
        dry_run=st.booleans(),
    ),
    st.builds(
        SetMode,
        word=names,
        table=targets,
        mode=st.sampled_from(MODES),
        node=st.just("") | names,
        wait=durations,
    ),
    st.builds(ValidateSink, name=names),
    st.builds(SteerSource, verb=st.sampled_from(Verb), word=names, table=targets),
    st.builds(
        PreviewSource, word=names, table=targets, limit=st.none() | st.integers(1, PREVIEW_MAX)
    ),
    st.builds(
        Show,
        subject=st.sampled_from(Subject),
        source=st.none() | st.builds(SourceName, names, targets),
    ),
    st.just(DescribeSinks()),
    st.just(DescribeSources()),
    of_histories,
)
