"""How jobs are: what `headrace status` and `headrace doctor` say."""
