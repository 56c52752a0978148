"""The statement language: lexer, parser, statements and their formatting."""
