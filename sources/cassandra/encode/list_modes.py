"""What a change says about lists that are not frozen."""

CELLS, READ = "cells", "read"
HEADER = "lists"  # Of changes whose lists were read.
