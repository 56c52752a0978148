"""The statement language: text to statements and back, and results to text. Executes nothing."""
