"""The framework: finds sources and sinks by name and runs them; never imports them."""
