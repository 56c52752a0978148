"""What is checked of what a job did: the invariants, and what agreement promises."""
