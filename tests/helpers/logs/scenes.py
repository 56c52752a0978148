"""Scenes: statements on tables as mutation bytes, which are read back as change documents."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.sources.cassandra.forge.mutations import encode_mutation
from headrace.sources.cassandra.forge.statements import Statements
from headrace.sources.cassandra.mutation.change_json import change_document
from headrace.sources.cassandra.mutation.changes import Change, Mutation, MutationDecoder
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue

NOW_US: Final = 1_700_000_000_000_000
NOW_S: Final = 1_700_000_000
# A statement of a script for `headrace forge`; a list of them is a batch.
Step = Mapping[str, Any] | Sequence[Mapping[str, Any]]
Document = dict[str, Any]


class Scene:
    """Tables, and statements on them; each statement is a microsecond later than the last one."""

    def __init__(self, *ddl: str) -> None:
        """Make the types and tables of *ddl*; table ids are assigned here."""
        made = []
        for number, statement in enumerate(ddl):
            options = f"ID = 00000000-0000-1000-8000-{number:012}"
            word = "AND" if " WITH " in statement else "WITH"
            is_table = statement.startswith("CREATE TABLE")
            made.append(f"{statement} {word} {options};" if is_table else f"{statement};")
        self.schema = parse_schema("\n".join(made))
        self._statements = Statements(self.schema, start_us=NOW_US)

    def raw(self, step: Step, *, messaging: int = 12) -> bytes:
        """Return the mutation of *step* as bytes; `updates` is mutation JSON."""
        if isinstance(step, Mapping) and "updates" in step:
            return encode_mutation(step, self.schema, messaging)
        statements = [step] if isinstance(step, Mapping) else step
        return encode_mutation(self._statements.document(statements), self.schema, messaging)

    def mutation(self, step: Step, *, messaging: int = 12) -> Mutation:
        """Return the mutation of *step*, decoded."""
        raw = self.raw(step, messaging=messaging)
        decoder = MutationDecoder(Catalogue(self.schema))
        return decoder.decode(raw, messaging=messaging, segment_id=1, position=1)

    def changes(self, *steps: Step, messaging: int = 12) -> list[Change]:
        """Return the changes of several mutations."""
        return [c for step in steps for c in self.mutation(step, messaging=messaging).changes()]

    def documents(self, *steps: Step, messaging: int = 12) -> list[Document]:
        """Return the documents of the changes of several mutations."""
        return [change_document(change) for change in self.changes(*steps, messaging=messaging)]

    def only(self, step: Step, *, messaging: int = 12) -> Document:
        """Return the document of the only change of a mutation."""
        (document,) = self.documents(step, messaging=messaging)
        return document

    def columns(self, step: Step, *, messaging: int = 12) -> Document:
        """Return the columns of the only change of a mutation."""
        columns: Document = self.only(step, messaging=messaging)["columns"]
        return columns
