"""The test that shows the effect of each option; `tests/test_effects.py` says more."""

from typing import Final

_SHOWN: Final[dict[str, dict[str, str]]] = {
    "crash/test_kill_plan.py::test_a_job_has_more_splits_when_it_has_more_workers": {
        "connector.foundation.job_file:RuntimeConfig": "resplit_seconds",
    },
    "connector/control/test_catalogue.py::test_a_source_that_begins_elsewhere_runs_beside": {
        "connector.control.entries:RouteOptions": "start",
    },
    "connector/control/test_jobs.py::test_statements_may_write_below_the_roots": {
        "connector.foundation.job_file:JobFile": "sink_files_roots",
    },
    "connector/rest/test_users.py::test_reads_users_and_certificates": {
        "connector.rest.users:_Certificate": "role",
        "connector.rest.users:_File": "certificates users",
        "connector.rest.users:_User": "password role",
    },
    "sources/cassandra/agent/test_server.py::test_only_its_own_names_are_answered": {
        "sources.cassandra.agent.command:AgentConfig": "hosts",
    },
    "connector/control/test_jobs.py::test_a_source_of_another_cluster": {
        "connector.control.entries:RouteOptions": "cluster",
        "connector.foundation.job_file:JobFile": "clusters",
    },
    "connector/hosting/test_run_taker.py::test_initial": {
        "connector.control.entries:RouteOptions": "snapshot",
    },
    "connector/hosting/test_run_taker.py::test_options_of_reading": {
        "connector.control.entries:RouteOptions": (
            "snapshot_page_rows snapshot_parallel snapshot_ranges snapshot_rate"
        ),
    },
    "connector/hosting/test_run_taker.py::test_another_target": {
        "connector.control.runs.options:IntoFolder": "suffix to_folder",
    },
    "connector/hosting/test_taking.py::test_options_of_a_target": {
        "connector.control.runs.options:IntoFolder": "catalog lake rate",
        "connector.control.runs.options:ReplayOptions": "format",
    },
    "connector/hosting/test_taking.py::test_options_of_a_replay": {
        "connector.control.runs.options:Bounded": "token_range",
        "connector.control.runs.options:Chosen": "operations",
        "connector.control.runs.options:ReplayOptions": "into_live shards suffix",
    },
    "connector/hosting/test_taking.py::test_positions_of_a_replay": {
        "connector.control.runs.options:Chosen": "after until",
    },
    "connector/hosting/test_taking.py::test_gaps_of_a_replay": {
        "connector.control.runs.options:ReplayOptions": "accept_gaps",
    },
    "connector/hosting/test_taking.py::test_options_of_a_comparison": {
        "connector.control.runs.options:ReconcileOptions": (
            "buckets grace no_table plain_keys table_shards"
        ),
    },
    "connector/hosting/test_taking.py::test_the_engine_of_a_run": {
        "connector.control.runs.options:OnEngine": "engine",
    },
    "connector/hosting/test_taking.py::test_a_repair": {
        "connector.control.runs.options:AskedReconcile": "repair",
    },
    "connector/control/test_catalogue.py::test_the_engine_of_a_job": {
        "connector.control.entries:RouteOptions": "engine",
    },
    "connector/control/test_catalogue.py::test_parts": {
        "connector.control.entries:RouteOptions": "job",
    },
    "connector/control/test_connector_config.py::test_source_of_a_config": {
        "connector.control.entries:ConnectorOptions": "keyspace table",
        "connector.control.entries:OwnOptions": "connector_class name sink",
        "connector.control.entries:RouteOptions": "tasks_max",
    },
    "connector/control/test_services.py::test_effects": {
        "connector.control.services:CdcService": (
            "data_center datacenter env fail_kafka_too_large_errors jobid log_only "
            "max_commit_logs max_watermarker_size micro_batch_delay_millis persist_delay_millis "
            "watermark_seconds"
        ),
    },
    "connector/control/test_services.py::test_one_job": {
        "connector.control.services:CdcService": "cdc_enabled",
    },
    "connector/control/test_services.py::test_refused": {
        "connector.control.services:CdcService": "fail_kafka_errors persist_state",
    },
    "connector/control/test_services.py::test_topics": {
        "connector.control.services:CdcService": "topic topic_format_type",
    },
    "connector/commands/bulk/test_replay.py::test_wrong_plans": {
        "connector.foundation.job_file:JobFile": "source",
    },
    "connector/obs/test_metrics.py::test_detail": {
        "connector.foundation.job_file:RuntimeConfig": "metrics_detail",
    },
    "plugins/telemetry/test_otlp.py::test_a_job_is_traced": {
        "connector.foundation.job_file:RuntimeConfig": "otel_endpoint",
    },
    "plugins/telemetry/test_otlp.py::test_metrics_come_again": {
        "connector.foundation.job_file:RuntimeConfig": "otel_every_seconds",
    },
    "connector/rest/test_auth.py::test_unsafe_configurations": {
        "connector.rest.config:RestConfig": "listen listen_services",
    },
    "connector/commands/test_worker.py::test_life_of_a_worker": {
        "connector.foundation.job_file:JobFile": "rest",
        "connector.rest.config:RestConfig": "hosts metrics_connect_names",
    },
    "connector/rest/test_hanging.py::test_reads_are_answered": {
        "connector.foundation.job_file:RuntimeConfig": "stall_seconds",
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
    "connector/runtime/modes/test_modes.py::test_a_write_ends_the_wait": {
        "plugins.config.realtime_options:RealtimeOptions": "mode",
    },
    "connector/runtime/modes/test_modes.py::test_a_full_buffer_is_latched": {
        "plugins.config.realtime_options:RealtimeOptions": "realtime_buffer_bytes",
    },
    "connector/runtime/modes/test_modes.py::test_block": {
        "plugins.config.realtime_options:RealtimeOptions": "realtime_on_overflow",
    },
    "connector/runtime/modes/test_modes.py::test_the_wait_is_an_option": {
        "plugins.config.realtime_options:RealtimeOptions": "realtime_return_after_seconds",
    },
    "connector/runtime/failures/test_tolerance.py::test_every_option_has_an_effect": {
        "plugins.config.sink_options:SinkOptions": "errors_budget_seconds errors_retry_delay_max",
    },
    "connector/runtime/failures/test_tolerance.py::test_rows_are_never_logged": {
        "plugins.config.sink_options:SinkOptions": "errors_log_include_messages",
    },
    "connector/runtime/failures/test_tolerance.py::test_what_a_run_comes_to": {
        "plugins.config.sink_options:SinkOptions": (
            "errors_budget_records errors_log_enable errors_retry_timeout errors_tolerance"
        ),
    },
    "connector/runtime/test_worker.py::test_a_lease_has_its_length": {
        "connector.foundation.job_file:RuntimeConfig": "lease_seconds",
    },
    "connector/runtime/test_worker.py::test_a_restart_is_waited_for": {
        "connector.foundation.job_file:RuntimeConfig": "restart_pause_seconds",
    },
    "connector/runtime/test_worker.py::test_a_sink_without_a_verdict_fails_its_split": {
        "connector.foundation.job_file:RuntimeConfig": "settle_seconds_max",
    },
    "connector/runtime/test_worker.py::test_bounds_of_the_file": {
        "connector.foundation.job_file:RuntimeConfig": (
            "batch_bytes_max batch_records_max commit_max_bytes commit_max_seconds "
            "outstanding_bytes_max outstanding_records_max retry_seconds_max stop_seconds_max "
            "tick_min_ms"
        ),
    },
    "connector/runtime/test_worker.py::test_hanging_plugin_ends_the_process": {
        "connector.foundation.job_file:RuntimeConfig": "call_seconds_max",
    },
    "connector/runtime/test_worker.py::test_quarantine_is_bounded": {
        "connector.foundation.job_file:RuntimeConfig": "quarantine_bytes_max",
    },
    "connector/runtime/test_worker.py::test_restarts_are_counted": {
        "connector.foundation.job_file:RuntimeConfig": "restarts_max",
    },
    "connector/serde/test_large.py::test_a_claim_that_holds_something_else_is_refused": {
        "connector.serde.large:DirectoryConfig": "path",
    },
    "connector/serde/test_large.py::test_a_table_can_have_a_policy_of_its_own": {
        "plugins.config.sink_options:SinkOptions": "large_policies",
    },
    "connector/serde/test_large.py::test_old_claims_are_removed": {
        "connector.serde.large:DirectoryConfig": "retention_hours",
    },
    "connector/serde/schemas/test_registry_client.py::test_an_answer_has_its_time": {
        "connector.serde.schemas.registry_client:RegistryConfig": "timeout_ms",
    },
    "connector/serde/schemas/test_registry_client.py::test_certificates_are_checked": {
        "connector.serde.schemas.registry_client:RegistryConfig": "ca_location",
    },
    "connector/serde/schemas/test_registry_client.py::test_users_show_a_password": {
        "connector.serde.schemas.registry_client:RegistryConfig": "password user",
    },
    "connector/serde/schemas/test_schema_files.py::test_each_schema_is_a_file": {
        "connector.serde.schemas.schema_files:SchemaFolderConfig": "path",
    },
    "connector/serde/transforms/test_chain.py::test_headers_come_and_go": {
        "connector.serde.transforms.builtin:DropHeadersConfig": "headers",
        "connector.serde.transforms.builtin:HeaderFromConfig": "fields headers operation",
    },
    "connector/serde/transforms/test_chain.py::test_mistakes_are_named_by_their_keys": {
        "plugins.config.sink_options:SinkOptions": "transforms_options",
    },
    "connector/serde/transforms/test_chain.py::test_predicates_say_which_records_are_meant": {
        "connector.serde.transforms.predicates:HasHeaderKeyConfig": "name",
        "connector.serde.transforms.predicates:OperationIsConfig": "operations",
        "connector.serde.transforms.predicates:PatternConfig": "pattern",
        "plugins.config.sink_options:SinkOptions": "predicates predicates_options",
    },
    "connector/serde/transforms/test_chain.py::test_records_are_routed_by_their_topic": {
        "connector.serde.transforms.builtin:RegexRouterConfig": "regex replacement",
    },
    "connector/serde/transforms/test_chain.py::test_the_key_can_be_made_of_the_value": {
        "connector.serde.transforms.builtin:ValueToKeyConfig": "fields",
    },
    "connector/serde/transforms/test_chain.py::test_values_are_changed_as_connect_changes_them": {
        "connector.serde.transforms.builtin:FlattenConfig": "delimiter",
        "connector.serde.transforms.builtin:InsertFieldConfig": (
            "static_field static_value timestamp_field topic_field"
        ),
        "connector.serde.transforms.builtin:MaskFieldConfig": "fields replacement",
        "connector.serde.transforms.builtin:ReplaceFieldConfig": "exclude include renames",
        "connector.serde.transforms.builtin:TimestampConverterConfig": (
            "field format target_type unix_precision"
        ),
        "connector.serde.transforms.casting:CastConfig": "spec",
        "plugins.config.sink_options:SinkOptions": "transforms",
    },
    "connector/stores/cassandra/test_session.py::test_a_slow_node_is_not_waited_for": {
        "connector.stores.cassandra.session:CassandraStoreConfig": "request_seconds_max",
    },
    "connector/stores/cassandra/test_session.py::test_another_data_centre_is_not_asked": {
        "connector.stores.cassandra.session:CassandraStoreConfig": "datacenter",
    },
    "connector/stores/cassandra/test_session.py::test_logging_in": {
        "connector.stores.cassandra.session:CassandraStoreConfig": "password username",
    },
    "connector/stores/cassandra/test_session.py::test_the_keyspace_is_made": {
        "connector.stores.cassandra.session:CassandraStoreConfig": "replication_factor",
    },
    "connector/stores/cassandra/test_session.py::test_the_keyspace_is_used": {
        "connector.stores.cassandra.session:CassandraStoreConfig": "contact_points keyspace",
    },
    "connector/stores/cassandra/test_session.py::test_tls": {
        "connector.stores.cassandra.session:CassandraStoreConfig": "ssl_ca ssl_certificate ssl_key",
    },
    "connector/stores/cassandra/test_session.py::test_who_decides": {
        "connector.stores.cassandra.session:CassandraStoreConfig": "consistency",
    },
    "connector/control/test_jobs.py::test_a_store_is_opened": {
        "connector.foundation.job_file:JobFile": "store",
        "connector.stores.sqlite.store:SqliteConfig": "path",
    },
    "connector/control/test_jobs.py::test_asks_the_state_for_a_missing_sink": {
        "connector.foundation.job_file:JobFile": "job",
    },
    "connector/control/test_jobs.py::test_names_every_mistake": {
        "connector.foundation.job_file:JobFile": "runtime sink",
    },
    "connector/control/test_jobs.py::test_takes_sink_and_tables_from_the_statements": {
        "connector.foundation.job_file:JobFile": "state",
    },
    "connector/control/histories/test_commands.py::test_the_file_is_for_its_owner": {
        "connector.history.config:HistoryConfig": "path",
    },
    "connector/history/store/test_group.py::test_purge_removes_all_files": {
        "connector.history.config:HistoryConfig": "files",
    },
    "connector/history/test_sink.py::test_buckets_and_table_cannot_be_changed": {
        "connector.history.config:HistoryConfig": "buckets table",
    },
    "connector/history/test_sink.py::test_images_that_were_off_know_nothing_of_that_time": {
        "connector.history.config:HistoryConfig": "include",
    },
    "connector/history/store/test_file.py::test_retention_removes_in_parts": {
        "connector.history.config:HistoryConfig": "retention",
    },
    "connector/lake/test_lake.py::test_statements_make_a_lake": {
        "connector.lake.config:DeltaConfig": "path",
        "connector.lake.config:IcebergConfig": "catalog namespace",
    },
    "connector/lake/test_lake.py::test_the_newest_of_each_column_wins": {
        "connector.lake.config:LakeConfig": "mode",
    },
    "connector/lake/test_lake.py::test_where_positions_are": {
        "connector.lake.config:IcebergConfig": "commits",
    },
    "connector/history/test_source.py::test_another_table_is_refused": {
        "connector.history.source:HistorySourceConfig": "path tables",
    },
    "connector/history/test_source.py::test_one_image_alone": {
        "connector.history.source:HistorySourceConfig": "images",
    },
    "connector/history/test_client.py::test_a_selection_chooses": {
        "connector.history.config:HistoryConfig": "seed",
    },
    "connector/history/test_reading.py::test_rows_that_a_range_removed_are_events_on_request": {
        "connector.history.config:HistoryConfig": "expand_deletes",
    },
    "connector/history/test_images.py::test_a_value_that_expires_is_an_update": {
        "connector.history.config:HistoryConfig": "ttl_events",
    },
    "sinks/files/test_files.py::test_cuts_off_a_torn_line": {
        "sinks.files:FileSinkConfig": "path",
    },
    "sinks/kafka/test_config.py::test_a_value_that_librdkafka_refuses_is_a_config_error": {
        "sinks.kafka.config:KafkaConfig": "librdkafka",
    },
    "sinks/kafka/test_config.py::test_an_option_may_state_what_the_sink_does_anyway": {
        "sinks.kafka.config:KafkaConfig": "stated",
    },
    "sinks/kafka/test_config.py::test_the_password_of_a_key_opens_it": {
        "sinks.kafka.config:KafkaConfig": "ssl_key_password ssl_keystore_password",
    },
    "sinks/kafka/test_config.py::test_the_password_of_a_user_is_shown": {
        "sinks.kafka.config:KafkaConfig": "sasl_password",
    },
    "sinks/kafka/test_dlq.py::test_what_happened_stands_in_headers": {
        "plugins.config.sink_options:SinkOptions": "errors_context errors_topic",
    },
    "sinks/kafka/test_schema_topic.py::test_a_value_that_librdkafka_refuses_is_a_config_error": {
        "sinks.kafka.schema_topic:SchemaTopicConfig": "librdkafka",
    },
    "sinks/kafka/test_schema_topic.py::test_each_schema_is_a_message": {
        "sinks.kafka.schema_topic:SchemaTopicConfig": "topic",
    },
    "sinks/kafka/test_schema_topic.py::test_the_store_logs_in": {
        "sinks.kafka.schema_topic:SchemaTopicConfig": "bootstrap_servers sasl_password",
    },
    "sinks/kafka/test_signals.py::test_what_was_followed_is_not_read_again": {
        "sinks.kafka.config:KafkaConfig": "signal_topic signal_group",
    },
    "sinks/kafka/test_topics.py::test_a_topic_is_made_of_the_tables_name": {
        "sinks.kafka.config:KafkaConfig": "topic_map",
    },
    "sinks/kafka/test_topics.py::test_missing_topics_are_made_as_asked": {
        "plugins.config.sink_options:SinkOptions": "errors_topic_replication",
        "sinks.kafka.config:KafkaConfig": (
            "topic_creation_config topic_creation_enable topic_creation_partitions "
            "topic_creation_replication"
        ),
    },
    "sinks/kafka/test_topics.py::test_records_go_to_the_topics_of_their_tables": {
        "sinks.kafka.config:KafkaConfig": "bootstrap_servers topic",
    },
    "sinks/kafka/test_topics.py::test_topics_are_not_made_unasked": {
        "sinks.kafka.config:KafkaConfig": "connect_timeout_ms",
    },
    "sinks/kafka/test_transactions.py::test_states_are_kept_there_when_it_is_asked_for": {
        "sinks.kafka.config:KafkaConfig": "exactly_once",
    },
    "sinks/kafka/test_transactions.py::test_where_states_are_kept": {
        "sinks.kafka.config:KafkaConfig": "offsets_topic transactional_id_prefix",
    },
    "sinks/kafka/test_writer.py::test_a_queue_that_fills_up_fails_the_rest_for_retry": {
        "sinks.kafka.config:KafkaConfig": "submit_timeout_ms",
    },
    "sinks/kafka/test_writer.py::test_a_value_beyond_the_bound_is_a_dead_letter": {
        "plugins.config.sink_options:SinkOptions": "large_bytes",
    },
    "sources/cassandra/scenarios/logs/test_bounds.py::"
    "test_a_node_that_is_down_takes_no_more_memory_than_is_allowed": {
        "sources.cassandra.config:CassandraConfig": "records_max",
    },
    "sources/cassandra/reading/test_cursor.py::"
    "test_any_wrong_byte_of_a_wrapped_segment_costs_copies_only": {
        "sources.cassandra.keystore.keys:KeyOptions": "raw_key",
    },
    "sources/cassandra/state/test_gaps.py::test_a_policy_lets_the_job_go_on_by_itself": {
        "sources.cassandra.config:CassandraConfig": "gaps",
    },
    "sources/cassandra/scenarios/jobs/test_into_kafka.py::test_confluents_deserializer_reads_every_message": {
        "connector.serde.schemas.registry_client:RegistryConfig": "url",
    },
    "sources/cassandra/retention/test_disposal.py::test_a_job_does_at_the_bound_as_it_says": {
        "sources.cassandra.retention.hold:HoldOptions": "hold_full",
    },
    "sources/cassandra/retention/test_disposal.py::test_a_job_has_the_bounds_that_it_says": {
        "sources.cassandra.retention.hold:HoldOptions": (
            "hold_bytes_max hold_min_free hold_retention_seconds"
        ),
    },
    "sources/cassandra/scenarios/logs/test_unavailable_logs.py::test_time_continues_without_a_log_after_its_wait": {
        "sources.cassandra.config:CassandraConfig": "absent_after_seconds",
    },
    "sources/cassandra/scenarios/logs/test_unavailable_logs.py::test_a_log_that_is_named_is_not_waited_for": {
        "sources.cassandra.config:CassandraConfig": "absent",
    },
    "sources/cassandra/scenarios/logs/test_unavailable_logs.py::test_what_returns_too_late_can_be_published_again": {
        "sources.cassandra.config:CassandraConfig": "returned",
    },
    "sources/cassandra/reading/test_lists.py::test_options": {
        "sources.cassandra.config:CassandraConfig": (
            "lists lists_concurrency lists_consistency lists_seconds_max lists_unread"
        ),
    },
    "sources/cassandra/reading/test_record_expiry.py::"
    "test_an_expired_mutation_is_dropped_or_published_with_its_copies": {
        "sources.cassandra.config:CassandraConfig": (
            "consistency expired expiry_seconds dedup_window_seconds"
        ),
    },
    "sources/cassandra/reading/test_record_expiry.py::"
    "test_what_all_replicas_have_logged_is_remembered_for_a_while": {
        "sources.cassandra.config:CassandraConfig": "complete_seconds",
    },
    "sources/cassandra/commitlog/test_opening.py::test_an_encrypted_log_is_followed": {
        "sources.cassandra.keystore.keys:KeyOptions": "keystore keystore_password",
    },
    "sources/cassandra/test_resources.py::test_a_key_has_a_password_of_its_own": {
        "sources.cassandra.keystore.keys:KeyOptions": "key_password",
    },
    "sources/cassandra/test_resources.py::test_a_live_node_is_asked": {
        "sources.cassandra.config:CassandraConfig": "contact_points password tls_ca username",
    },
    "sources/cassandra/test_resources.py::test_a_table_that_is_not_there_is_waited_for_beside_others": {
        "sources.cassandra.config:CassandraConfig": "tables_missing",
    },
    "sources/cassandra/test_resources.py::test_w03_counters_are_passed_over_by_name": {
        "sources.cassandra.config:CassandraConfig": "schema tables",
    },
    "sources/cassandra/reading/test_pump.py::test_so_many_segments_are_begun_in_a_pass": {
        "sources.cassandra.config:CassandraConfig": "segments_per_batch_max",
    },
    "sources/cassandra/reading/test_pump.py::test_splits_join_and_leave": {
        "sources.cassandra.config:CassandraConfig": "splits",
    },
    "sources/cassandra/test_reader.py::test_released_segments_go_but_for_those_of_pending_copies": {
        "sources.cassandra.config:CassandraConfig": "disposal",
    },
    "sources/cassandra/agent/test_command.py::test_it_sends_its_metrics": {
        "sources.cassandra.agent.command:AgentConfig": "otel_endpoint otel_every_seconds",
    },
    "sources/cassandra/agent/test_client.py::test_a_job_reads_nodes_elsewhere": {
        "sources.cassandra.config:CassandraConfig": "agent_token",
    },
    "sources/cassandra/agent/test_client.py::test_a_job_shows_its_certificate": {
        "sources.cassandra.config:CassandraConfig": "agent_ca agent_certificate agent_key",
    },
    "sources/cassandra/agent/test_client.py::test_an_agent_holds_what_it_serves": {
        "sources.cassandra.agent.command:AgentConfig": "hold",
    },
    "sources/cassandra/agent/test_client.py::test_an_agent_sees_what_the_node_let_go": {
        "sources.cassandra.agent.command:AgentConfig": "commitlog",
    },
    "sources/cassandra/agent/test_client.py::test_an_agent_sends_no_faster_than_it_may": {
        "sources.cassandra.agent.command:AgentConfig": "rate_bytes",
    },
    "sources/cassandra/agent/test_client.py::test_an_agent_serves_what_the_directory_has": {
        "sources.cassandra.agent.command:AgentConfig": "cdc_raw",
    },
    "sources/cassandra/agent/test_client.py::test_certificates_are_checked_on_both_sides": {
        "sources.cassandra.agent.command:AgentConfig": "tls_certificate tls_client_ca tls_key",
    },
    "sources/cassandra/agent/test_client.py::test_needs_are_kept_by_the_agent": {
        "sources.cassandra.agent.command:AgentConfig": "disposal",
    },
    "sources/cassandra/agent/test_client.py::test_readers_show_the_token": {
        "sources.cassandra.agent.command:AgentConfig": "token",
    },
    "sources/cassandra/agent/test_client.py::test_the_command_serves_until_it_is_stopped": {
        "sources.cassandra.agent.command:AgentConfig": "listen",
    },
    "sources/cassandra/scenarios/rings/test_replicas.py::test_p05_a_level_is_honoured_exactly": {
        "sources.cassandra.config:CassandraConfig": "datacenter",
    },
    "sources/cassandra/scenarios/jobs/test_sink_options.py::test_a_schema_that_is_refused": {
        "plugins.config.sink_options:SinkOptions": "schema_on_incompatible",
    },
    "sources/cassandra/scenarios/jobs/test_sink_options.py::test_framing": {
        "plugins.config.sink_options:SinkOptions": "schema_framing",
    },
    "sources/cassandra/scenarios/jobs/test_sink_options.py::test_headers": {
        "sinks.kafka.config:KafkaConfig": "headers",
    },
    "sources/cassandra/scenarios/jobs/test_sink_options.py::test_large_values": {
        "plugins.config.sink_options:SinkOptions": "large_policy large_store large_store_options",
    },
    "sources/cassandra/scenarios/jobs/test_sink_options.py::test_schemas_are_kept": {
        "plugins.config.sink_options:SinkOptions": "schema_store schema_store_options schema_subjects",
    },
    "sources/cassandra/scenarios/jobs/test_sink_options.py::test_the_envelope": {
        "sinks.kafka.config:KafkaConfig": "envelope",
    },
    "sources/cassandra/scenarios/jobs/test_sink_options.py::test_the_key": {
        "sinks.kafka.config:KafkaConfig": "key key_format",
    },
    "sources/cassandra/scenarios/jobs/test_sink_options.py::test_the_null_sink_has_a_format": {
        "sinks.null:NullConfig": "format",
    },
    "sources/cassandra/scenarios/jobs/test_sink_options.py::test_the_value": {
        "sinks.kafka.config:KafkaConfig": "format types",
    },
    "sources/cassandra/scenarios/jobs/test_sink_options.py::test_tombstones": {
        "sinks.kafka.config:KafkaConfig": "tombstones_on_delete",
    },
    "sources/cassandra/scenarios/jobs/test_starts.py::test_the_state_says_where_reading_began": {
        "connector.foundation.job_file:JobFile": "start",
    },
    "sources/cassandra/logs/test_repair_streams.py::test_what_is_not_known_is_published_or_left_out": {
        "sources.cassandra.config:CassandraConfig": "streamed",
    },
    "sources/cassandra/logs/test_seek.py::test_a_read_only_source_leaves_nothing": {
        "sources.cassandra.config:CassandraConfig": "nodes",
    },
    "sources/cassandra/test_table_source.py::test_a_node_is_asked": {
        "sources.cassandra.table_source:TableConfig": (
            "contact_points page_rows password read_consistency tls_ca username"
        ),
    },
    "sources/cassandra/test_table_source.py::test_ranges_cover_the_ring": {
        "sources.cassandra.table_source:TableConfig": "splits",
    },
    "sources/cassandra/test_table_source.py::test_tables_that_cannot_be_read": {
        "sources.cassandra.table_source:TableConfig": "table",
    },
    "sources/cassandra/scenarios/rings/test_topology_changes.py::test_a_ring_is_retired_after_the_hint_window": {
        "sources.cassandra.config:CassandraConfig": "max_hint_window_seconds topology",
    },
    "sources/files/test_files.py::test_bad_line": {
        "sources.files:FileSourceConfig": "path",
    },
}

EFFECTS: Final = {
    f"{place}.{name}": test
    for test, places in _SHOWN.items()
    for place, names in places.items()
    for name in names.split()
}
