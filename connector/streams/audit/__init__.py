"""An audit of a job's topics: what they have, beside what the books say was delivered."""
