"""The checks of `headrace doctor` and of VALIDATE DATA_SINK."""
