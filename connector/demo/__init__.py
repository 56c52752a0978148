"""The demo: a recorded cluster through the whole product into Kafka, checked by a consumer."""
