"""Bulk work on Spark: replay, backfill, reconcile. The only room that imports pyspark.

The code of a task is plain Python and needs no Spark: `shards`, `delivery`, `columns`. A module
that imports pyspark says so in its docstring.
"""

import headrace.connector.obs  # noqa: F401 (each of Spark's processes imports structlog by it)
