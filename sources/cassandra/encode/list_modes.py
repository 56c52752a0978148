"""The forms of unfrozen lists in changes."""

CELLS, READ = "cells", "read"
HEADER = "lists"  # Of changes whose lists were read.
