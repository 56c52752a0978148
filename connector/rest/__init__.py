"""HTTP doors to the command service: Kafka Connect's paths, the Sidecar's, and our own."""
