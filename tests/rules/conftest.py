"""Fixtures of the rules: the published OpenAPI document."""

from typing import Any

import pytest

from tests.rules import published


@pytest.fixture(scope="module")
def document() -> Any:
    """Return the parsed document."""
    return published.document()
