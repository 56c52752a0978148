"""Makes a job's plugins from their options; when that fails, the error names the plugin."""

import structlog

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.obs.blame import made
from headrace.connector.stores.job import Job
from headrace.plugins import Context, Sink, Source


def read_only_context(job: str, job_key: bytes) -> Context:
    """Return what the plugins of *job* get in a process that only looks at it."""
    log = structlog.stdlib.get_logger()
    return Context(job=job, clock=SystemClock(), job_key=job_key, log=log, read_only=True)


def made_source(job: Job, context: Context) -> Source:
    """Make the source of *job*. Raises as `made`."""
    return made(job.source, job.source_config, context)


def made_sink(job: Job, context: Context) -> Sink:
    """Make the sink of *job*. Raises as `made`."""
    return made(job.sink, job.sink_config, context)
