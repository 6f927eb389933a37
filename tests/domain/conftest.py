"""Fixtures of the domain tests (an installation in this process, a contact with a phone) and Hypothesis profiles."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.domain.home import Home
from tests.domain.talk import ANN, OURS
from tests.kit.sampling import examples

# The same examples on every run make failures repeatable; HYPOTHESIS_PROFILE=explore looks for new ones
_slow = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile(
    "usual", derandomize=True, database=None, deadline=None, max_examples=examples(25, full=60),
    suppress_health_check=_slow,
)  # fmt: skip
settings.register_profile("explore", database=None, deadline=None, max_examples=1000, suppress_health_check=_slow)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """Yield a new installation with one account.

    It is closed afterwards because its settings are global to the process.
    """
    installation = Home(tmp_path)
    yield installation
    installation.close()


@pytest.fixture
def ann(home: Home) -> int:
    """Return the id of a contact who opted in to SMS; the account sends from the number OURS."""
    home.configure(sms__twilio__from=OURS)
    return int(home.upsert(phone=ANN, opt_in=True).contact.id)
