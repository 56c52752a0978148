"""All statements, as a hypothesis strategy."""

from hypothesis import strategies as st

from headrace.connector.language.cursor import UNSAFE_CHARACTER
from headrace.connector.language.parser import PREVIEW_MAX
from headrace.connector.language.statements import (
    AlterSink,
    AlterSource,
    CreateSink,
    CreateSource,
    DescribeSink,
    DescribeSinks,
    DescribeSource,
    DescribeSources,
    DropSink,
    DropSource,
    PreviewSource,
    SetPosition,
    Show,
    SourceName,
    Statement,
    SteerSource,
    Subject,
    TableName,
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

statements: st.SearchStrategy[Statement] = st.one_of(
    st.builds(CreateSink, name=names, uri=texts, options=options, if_not_exists=st.booleans()),
    st.builds(DropSink, name=names, if_exists=st.booleans()),
    st.builds(DescribeSink, name=names, as_config=st.booleans()),
    st.builds(
        CreateSource,
        word=names,
        table=tables,
        sink=names,
        options=options,
        if_not_exists=st.booleans(),
    ),
    st.builds(DropSource, word=names, table=tables, if_exists=st.booleans()),
    st.builds(DescribeSource, word=names, table=tables, as_config=st.booleans()),
    st.builds(AlterSink, name=names, uri=texts, options=st.just(()) | changes),
    st.builds(AlterSink, name=names, options=changes, if_exists=st.booleans()),
    st.builds(AlterSource, word=names, table=tables, sink=names, options=st.just(()) | changes),
    st.builds(AlterSource, word=names, table=tables, options=changes, if_exists=st.booleans()),
    st.builds(
        SetPosition,
        word=names,
        table=tables,
        position=texts,
        split=st.none() | texts,
        dry_run=st.booleans(),
    ),
    st.builds(ValidateSink, name=names),
    st.builds(SteerSource, verb=st.sampled_from(Verb), word=names, table=tables),
    st.builds(
        PreviewSource, word=names, table=tables, limit=st.none() | st.integers(1, PREVIEW_MAX)
    ),
    st.builds(
        Show,
        subject=st.sampled_from(Subject),
        source=st.none() | st.builds(SourceName, names, tables),
    ),
    st.just(DescribeSinks()),
    st.just(DescribeSources()),
)
