"""The browser that opens the demo's report."""

from tests.browser import browser

__all__ = ["browser"]
