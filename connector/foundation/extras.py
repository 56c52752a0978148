"""How users install the extras of headrace."""


def install_hint(extra: str) -> str:
    """Return how to install an extra of headrace, which is on no package index."""
    return (
        f"in a clone: pip install -e '.[{extra}]'; "
        f"from a wheel: pip install 'headrace-….whl[{extra}]'"
    )
