"""Makes a job's plugins from their options; when that fails, the error names the plugin."""

from functools import partial

import structlog

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.obs.blame import made
from headrace.connector.runtime.failures.hung import returned
from headrace.connector.stores.job import Job
from headrace.plugins import Context, Sink, Source


def read_only_context(job: str, job_key: bytes) -> Context:
    """Return the context of the plugins of *job* in a process that only reads its state."""
    log = structlog.stdlib.get_logger()
    return Context(job=job, clock=SystemClock(), job_key=job_key, log=log, read_only=True)


def made_source(job: Job, context: Context) -> Source:
    """Make the source of *job*. Raises as `made`, and PluginHungError."""
    call = partial(made, job.source, job.source_config, context)
    source: Source = returned(call, "making the source", seconds=job.runtime.call_seconds_max)
    return source


def made_sink(job: Job, context: Context) -> Sink:
    """Make the sink of *job*. Raises as `made`, and PluginHungError."""
    call = partial(made, job.sink, job.sink_config, context)
    sink: Sink = returned(call, "making the sink", seconds=job.runtime.call_seconds_max)
    return sink
