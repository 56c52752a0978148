"""The demo: plays a recorded cluster through the whole product into Kafka; a consumer checks it."""
