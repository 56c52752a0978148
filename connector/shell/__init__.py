"""The statement language: text to statements and back, results to text; and the shell."""
