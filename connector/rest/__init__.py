"""The HTTP server: Kafka Connect's paths, the Sidecar's, and our own."""
