"""Which test shows the effect of which option; `tests/test_effects.py` says more."""

from typing import Final

_SHOWN: Final[dict[str, dict[str, str]]] = {
    "connector/control/test_services.py::test_effects": {
        "connector.control.services:CdcService": (
            "data_center datacenter env fail_kafka_errors fail_kafka_too_large_errors "
            "jobid log_only max_commit_logs max_watermarker_size micro_batch_delay_millis "
            "persist_delay_millis persist_state watermark_seconds"
        ),
    },
    "connector/control/test_services.py::test_one_job": {
        "connector.control.services:CdcService": "cdc_enabled",
    },
    "connector/control/test_services.py::test_topics": {
        "connector.control.services:CdcService": "topic topic_format_type",
    },
    "connector/rest/test_auth.py::test_unsafe_configurations": {
        "connector.rest.config:RestConfig": "listen listen_services",
    },
    "connector/rest/test_hanging.py::test_reads_are_answered": {
        "connector.job:RuntimeConfig": "stall_seconds",
    },
    "connector/rest/test_logins.py::test_options": {
        "connector.rest.config:RestConfig": "cassandra cassandra_ca",
    },
    "connector/rest/test_tls.py::test_bad_files": {
        "connector.rest.config:RestConfig": "tls_certificate tls_client_ca tls_key",
    },
    "connector/rest/test_tls.py::test_basic": {
        "connector.rest.config:RestConfig": "users",
    },
    "connector/rest/test_tls.py::test_bearer": {
        "connector.rest.config:RestConfig": "jwt_audience jwt_issuer jwt_keys jwt_role_claim",
    },
    "connector/runtime/test_hosting.py::test_failed_split_is_tried_again": {
        "connector.job:RuntimeConfig": "restart_pause_seconds restarts_max",
    },
    "connector/runtime/test_worker.py::test_bounds_of_the_file": {
        "connector.job:RuntimeConfig": (
            "batch_bytes_max batch_records_max commit_max_bytes commit_max_seconds "
            "outstanding_bytes_max outstanding_records_max retry_seconds_max "
            "stop_seconds_max tick_min_ms"
        ),
    },
    "connector/runtime/test_worker.py::test_hanging_plugin_ends_the_process": {
        "connector.job:RuntimeConfig": "call_seconds_max",
    },
    "connector/serde/test_large.py::test_old_claims_are_removed": {
        "connector.serde.large:DirectoryConfig": "retention_hours",
    },
    "connector/serde/test_schema_files.py::test_each_schema_is_a_file": {
        "connector.serde.schema_files:SchemaFolderConfig": "path",
    },
    "connector/serde/transforms/test_chain.py::test_headers_come_and_go": {
        "connector.serde.transforms.builtin:DropHeadersConfig": "headers",
        "connector.serde.transforms.builtin:HeaderFromConfig": "fields headers operation",
    },
    "connector/serde/transforms/test_chain.py::test_predicates_say_which_records_are_meant": {
        "connector.serde.transforms.predicates:HasHeaderKeyConfig": "name",
        "connector.serde.transforms.predicates:OperationIsConfig": "operations",
        "connector.serde.transforms.predicates:PatternConfig": "pattern",
    },
    "connector/serde/transforms/test_chain.py::test_records_are_routed_by_their_topic": {
        "connector.serde.transforms.builtin:RegexRouterConfig": "regex",
    },
    "connector/serde/transforms/test_chain.py::test_the_key_can_be_made_of_the_value": {
        "connector.serde.transforms.builtin:ValueToKeyConfig": "fields",
    },
    "connector/serde/transforms/test_chain.py::test_values_are_changed_as_connect_changes_them": {
        "connector.serde.transforms.builtin:InsertFieldConfig": (
            "static_field static_value timestamp_field topic_field"
        ),
        "connector.serde.transforms.builtin:MaskFieldConfig": "fields replacement",
        "connector.serde.transforms.builtin:ReplaceFieldConfig": "exclude include renames",
        "connector.serde.transforms.builtin:TimestampConverterConfig": "field target_type",
    },
    "sources/cassandra/test_gaps.py::test_what_was_listed_before_the_process_died_is_remembered": {
        "sources.cassandra.config:CassandraConfig": "segments_per_batch_max",
    },
    "sources/cassandra/test_into_kafka.py::test_confluents_deserializer_reads_every_message": {
        "connector.serde.registry_client:RegistryConfig": "url",
    },
    "sources/cassandra/test_live_files.py::test_who_lags_behind_a_node_without_room_is_told": {
        "sources.cassandra.config:CassandraConfig": "gaps",
    },
    "sources/cassandra/test_lists.py::test_options": {
        "sources.cassandra.config:CassandraConfig": (
            "lists lists_concurrency lists_consistency lists_seconds_max lists_unread"
        ),
    },
    "sources/cassandra/test_memory.py::"
    "test_an_expired_mutation_is_dropped_or_published_with_its_copies": {
        "sources.cassandra.config:CassandraConfig": "consistency",
    },
    "sources/cassandra/test_keeper.py::test_the_oldest_are_dropped_where_that_is_wanted": {
        "sources.cassandra.hold_options:HoldOptions": "hold_bytes_max hold_full",
    },
    "sources/cassandra/test_keeper.py::test_a_job_has_the_bounds_that_it_says": {
        "sources.cassandra.hold_options:HoldOptions": "hold_min_free hold_retention_seconds",
    },
    "sources/cassandra/test_parts.py::test_w03_counters_are_passed_over_by_name": {
        "sources.cassandra.config:CassandraConfig": "schema tables",
    },
    "sources/cassandra/test_pump.py::test_time_passes_only_while_all_is_read": {
        "sources.cassandra.config:CassandraConfig": "expiry_seconds",
    },
    "sources/cassandra/test_reader.py::test_a_node_that_the_state_knows_cannot_be_left_out": {
        "connector.stores.cassandra_session:CassandraStoreConfig": "consistency",
    },
    "sources/cassandra/test_reader.py::test_released_segments_go_but_for_those_of_pending_copies": {
        "sources.cassandra.config:CassandraConfig": "disposal",
    },
    "sources/cassandra/test_starts.py::test_the_state_says_where_reading_began": {
        "connector.job:JobFile": "start",
    },
    "sources/cassandra/test_streams.py::test_what_is_not_known_is_published_or_left_out": {
        "sources.cassandra.config:CassandraConfig": "streamed",
    },
    "sources/cassandra/test_survey.py::test_a_spectator_leaves_nothing": {
        "sources.cassandra.config:CassandraConfig": "nodes",
    },
    "sources/cassandra/test_topology_changes.py::test_a_ring_is_retired_after_the_hint_window": {
        "sources.cassandra.config:CassandraConfig": "max_hint_window_seconds topology",
    },
    "sources/cassandra/test_transcode.py::test_an_agreed_ring_is_encoded_as_its_records_are": {
        "sources.cassandra.config:CassandraConfig": "splits",
    },
    "sources/cassandra/test_table_source.py::test_options": {
        "sources.cassandra.table_source:TableConfig": (
            "contact_points password read_consistency tls_ca username"
        ),
    },
    "sources/cassandra/test_table_source.py::test_ranges_cover_the_ring": {
        "sources.cassandra.table_source:TableConfig": "splits",
    },
    "sources/cassandra/test_table_source.py::test_tables_that_cannot_be_read": {
        "sources.cassandra.table_source:TableConfig": "table",
    },
}

EFFECTS: Final = {
    f"{place}.{name}": test
    for test, places in _SHOWN.items()
    for place, names in places.items()
    for name in names.split()
}

# Their rooms test them, but no test was seen yet to fail when they are deaf. No longer than this.
_OPEN: Final = {
    "connector.control.entries:ConnectorOptions": ("connector_class keyspace name sink table"),
    "connector.control.entries:RouteOptions": "job start tasks_max",
    "connector.job:JobFile": "job rest runtime sink source state store",
    "connector.job:RuntimeConfig": "lease_seconds quarantine_bytes_max settle_seconds_max",
    "connector.rest.config:RestConfig": "hosts",
    "connector.serde.large:DirectoryConfig": "path",
    "connector.serde.registry_client:RegistryConfig": "ca_location password timeout_ms user",
    "connector.serde.transforms.builtin:FlattenConfig": "delimiter",
    "connector.serde.transforms.builtin:RegexRouterConfig": "replacement",
    "connector.serde.transforms.builtin:TimestampConverterConfig": "format unix_precision",
    "connector.stores.cassandra_session:CassandraStoreConfig": (
        "contact_points datacenter keyspace password replication_factor "
        "request_seconds_max ssl_ca ssl_certificate ssl_key username"
    ),
    "connector.stores.sqlite:SqliteConfig": "path",
    "plugins.sink_options:SinkOptions": (
        "errors_budget_records errors_budget_seconds errors_context errors_log_enable "
        "errors_log_include_messages errors_retry_delay_max errors_retry_timeout "
        "errors_tolerance errors_topic errors_topic_replication large_bytes "
        "large_policies large_policy large_store large_store_options predicates "
        "predicates_options schema_framing schema_on_incompatible schema_store "
        "schema_store_options schema_subjects transforms transforms_options"
    ),
    "sinks.files:FileSinkConfig": "path",
    "sinks.kafka.config:KafkaConfig": (
        "bootstrap_servers connect_timeout_ms envelope exactly_once format headers "
        "key key_format librdkafka offsets_topic sasl_password ssl_key_password "
        "ssl_keystore_password submit_timeout_ms tombstones_on_delete topic "
        "topic_creation_config topic_creation_enable topic_creation_partitions "
        "topic_creation_replication topic_map transactional_id_prefix types"
    ),
    "sinks.kafka.schema_topic:SchemaTopicConfig": (
        "bootstrap_servers librdkafka sasl_password topic"
    ),
    "sinks.null:NullConfig": "format",
    "sources.cassandra.agent_command:AgentConfig": (
        "cdc_raw commitlog disposal hold listen rate_bytes tls_certificate "
        "tls_client_ca tls_key token"
    ),
    "sources.cassandra.config:CassandraConfig": (
        "agent_ca agent_certificate agent_key agent_token complete_seconds "
        "contact_points datacenter expired key_password keystore keystore_password "
        "memory_seconds password raw_key records_max tls_ca username"
    ),
    "sources.files:FileSourceConfig": "path",
}
NOT_SHOWN: Final = {f"{place}.{name}" for place, names in _OPEN.items() for name in names.split()}
