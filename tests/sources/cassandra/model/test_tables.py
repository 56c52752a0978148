"""Two tables and two jobs of the same logs, in any order; mistakes are in `test_sabotage`."""

import pytest

from helpers.model.machines.runs import EXAMPLES, run
from helpers.model.machines.tables import Tables


@pytest.mark.soak
def test_a_table_beside_its_job_takes_nothing_from_it() -> None:
    """I1 to I3, I5 to I7 for both: shared markers never move for one table (line 33)."""
    assert EXAMPLES // 2 <= run(Tables, EXAMPLES // 2)
