"""Settings for every test."""

from hypothesis import settings

from hot import hot_modules, is_compiled, obey_native

obey_native()

# A shared machine is slow at random; a property that is slow is found by timing, not here.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")


def pytest_report_header() -> str:
    """Say whether machine code or the interpreter is tested."""
    compiled = [is_compiled(name) for name in hot_modules()]
    return f"hot modules: {compiled.count(True)} compiled, {compiled.count(False)} interpreted"
