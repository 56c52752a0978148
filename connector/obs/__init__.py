"""What an operator sees of a running process: its log; later its metrics and its health."""
