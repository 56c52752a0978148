"""The health of jobs, for `headrace status` and `headrace doctor`."""
