"""The statement language: lexer, parser, statements and how they are written."""
