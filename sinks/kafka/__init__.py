"""The Kafka sink: records in, messages with `acks=all` and idempotence out."""

from headrace.sinks.kafka.config import KafkaConfig
from headrace.sinks.kafka.sink import KafkaSink
from headrace.sinks.kafka.writer import KafkaWriter

__all__ = ["KafkaConfig", "KafkaSink", "KafkaWriter"]
