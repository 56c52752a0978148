"""headrace moves changes out of a database's log to where other programs can use them."""

__version__ = "0.1.0"
