"""Fixtures of the domain tests: an installation in this process, and how hard Hypothesis tries."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.domain.home import Home
from tests.domain.talk import ANN, OURS

# The same examples on every run, so that a red run can be repeated; HYPOTHESIS_PROFILE=explore looks for new ones
_slow = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
settings.register_profile(
    "usual", derandomize=True, database=None, deadline=None, max_examples=60, suppress_health_check=_slow
)
settings.register_profile("explore", database=None, deadline=None, max_examples=1000, suppress_health_check=_slow)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A fresh installation with one account, reset afterwards because it is the whole process's."""
    made = Home(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ann(home: Home) -> int:
    """Somebody who agreed to SMS, and a number of ours that the account writes from."""
    home.configure(sms__twilio__from=OURS)
    return int(home.upsert(phone=ANN, opt_in=True).contact.id)
