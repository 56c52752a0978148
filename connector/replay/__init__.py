"""Bulk work on Spark: replay, backfill, reconcile. The only room that imports pyspark.

What a task does is plain Python and needs no Spark: `shards`, `delivery`, `columns`. Modules that
import pyspark say so in their first line.
"""

import headrace.connector.obs  # noqa: F401 (each of Spark's processes imports structlog by it)
