"""The state machines that hypothesis drives, and the schedules that it gives them."""
