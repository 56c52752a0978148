"""Writes changes into a history: of one part, or of several."""
