"""Every statement there is, as a hypothesis strategy."""

from hypothesis import strategies as st

from headrace.connector.shell.lexer import UNSAFE_CHARACTER
from headrace.connector.shell.statements import (
    CreateSink,
    CreateSource,
    DescribeSink,
    DescribeSinks,
    DescribeSource,
    DescribeSources,
    DropSink,
    DropSource,
    Statement,
    TableName,
)

texts = st.text(max_size=20).filter(lambda text: not UNSAFE_CHARACTER.search(text))
_WORDS = ["k", "Orders", "select", "data_sink", "if", "and", "a b", "it's", 'q"', "//", "a.b"]
names = st.sampled_from(_WORDS) | texts.filter(bool)
values = texts | st.sampled_from(["true", "False", "-1", "1e9", "3.", "007", "NaN", "'", ""])
options = st.lists(
    st.tuples(st.sampled_from(["security.protocol", "Mixed.Case", "schema", "1"]) | names, values),
    max_size=4,
    unique_by=lambda pair: pair[0],
).map(tuple)
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
    st.just(DescribeSinks()),
    st.just(DescribeSources()),
)
