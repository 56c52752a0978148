"""The quickstart: a simulated ring that takes writes, a worker, a broker and a consumer, live."""
