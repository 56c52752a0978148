"""Reads the keys of encrypted segments from Java key stores."""
