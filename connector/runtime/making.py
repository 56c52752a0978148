"""Makes a job's plugins from their options; when that fails, the error names the plugin."""

from headrace.connector.obs.blame import making, remember
from headrace.connector.stores.job import Job
from headrace.plugins import Context, Sink, Source


def made_source(job: Job, context: Context) -> Source:
    """Make the source of *job*. Raises what it raises, and PluginBrokenError."""
    with making(job.source, "made", job.source_config):
        made: Source = job.source(job.source_config, context)
    remember(made, job.source_config)
    return made


def made_sink(job: Job, context: Context) -> Sink:
    """Make the sink of *job*. Raises what it raises, and PluginBrokenError."""
    with making(job.sink, "made", job.sink_config):
        made: Sink = job.sink(job.sink_config, context)
    remember(made, job.sink_config)
    return made
