"""Options of predicates are checked when they are parsed."""

import pytest

from headrace.connector.serde.transforms.predicates import OperationIsConfig
from headrace.plugins import ConfigError, Operation


@pytest.mark.parametrize(
    ("operations", "hint"),
    [
        pytest.param(("INSERT", "INSRET"), "did you mean INSERT?", id="misspelt"),
        pytest.param(("delete",), "did you mean DELETE?", id="lower case"),
        pytest.param(("x",), "", id="like no other"),
        pytest.param((), "", id="none"),
    ],
)
def test_an_unknown_operation_is_refused(operations: tuple[str, ...], hint: str) -> None:
    """An unknown operation is refused, with a list of the known ones."""
    with pytest.raises(ConfigError) as caught:
        OperationIsConfig(operations=operations)

    ((problem),) = caught.value.problems
    assert ("operations", hint) == (problem.key, problem.hint)
    assert all(operation in problem.message for operation in Operation)


def test_every_operation_is_known() -> None:
    """Every operation is accepted under its name in messages."""
    assert len(Operation) == len(OperationIsConfig(operations=tuple(Operation)).operations)
