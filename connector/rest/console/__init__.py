"""The console: pages for people at `/`, each also as JSON."""
