"""The contents of the console's pages, as JSON documents."""
