"""Fixtures of the fault tests: servers with the SMTP or SMS test server, and the figures of each test."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.conftest import FreshServer
from tests.kit.clock import TestClock
from tests.kit.fake_sms import FakeSms
from tests.kit.fork_server import SYNCED
from tests.kit.recipients import NO_RATE_LIMITS
from tests.kit.reconciliation import Reconciliation
from tests.kit.s3_server import S3Server
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

_TABLE_HEAD = "| Test | Size | Kills | Copies | Missing | Seconds | More |\n|-|-|-|-|-|-|-|\n"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run random tests with one seed, and with three if `--full` is given."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", (1, 2, 3) if metafunc.config.getoption("--full") else (1,))


class Figures:
    """Measured figures of a test, for the table of all fault tests."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._figures: dict[str, Any] = {}

    def note(self, **figures: Any) -> None:
        """Add figures by name."""
        self._figures |= figures

    def books(self, books: Reconciliation, **figures: Any) -> None:
        """Add the figures of a campaign; counts add up over several campaigns."""
        for name, value in (("size", books.audience), ("copies", books.copies), ("missing", books.missing)):
            self._figures[name] = self._figures.get(name, 0) + value
        self.note(**figures)

    @property
    def has_figures(self) -> bool:
        """Whether any figure was added."""
        return bool(self._figures)

    def table_row(self, name: str) -> str:
        """Return the figures as a row of the table."""
        known = [str(self._figures.pop(column, "")) for column in ("size", "kills", "copies", "missing")]
        more = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self._figures.items())
        return f"| {' | '.join([name, *known, f'{time.monotonic() - self._begun:.1f}', more])} |"


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Collect a test's figures; print them, and with `--figures FILE` add them to the table in the file."""
    collected = Figures()
    yield collected
    if not collected.has_figures:
        return
    line = collected.table_row(f"{request.path.stem}: {request.node.name}")
    print(line)
    table = request.config.getoption("--figures")
    if table:
        path = Path(table)
        with path.open("a", encoding="utf-8") as file:
            file.write(("" if path.stat().st_size else _TABLE_HEAD) + line + "\n")


class StartRelayed(Protocol):
    """Starts a server with a relay and a postal address; settings are the last part of `CAMPANERO_EMAIL__`.

    With `is_synced` its commits wait for the disk (`fork_server.SYNCED`).
    """

    def __call__(self, clock: Any = None, is_synced: bool = False, **settings: str) -> Server: ...


@pytest.fixture
def relayed(fresh_server: FreshServer, smtp_server: SmtpServer) -> StartRelayed:
    """Start servers that send to the SMTP test server: `relayed(in_doubt="hold")` sets `email.in_doubt`."""

    def make(clock: Any = None, is_synced: bool = False, **settings: str) -> Server:
        env = {f"CAMPANERO_EMAIL__{name.upper()}": value for name, value in settings.items()}
        env |= SYNCED if is_synced else {}
        return fresh_server(relay=smtp_server.port, env=NO_RATE_LIMITS | {"CAMPANERO_EMAIL__PROBE_AFTER": "1s"} | env,
                            clock=clock)  # fmt: skip

    return make


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """Yield an S3 server, shared by the tests of a module."""
    with S3Server() as running:
        yield running


class StartSms(Protocol):
    """Starts a server that sends to the SMS test provider; settings are the last part of `CAMPANERO_SMS__`."""

    def __call__(self, env: dict[str, str] | None = None, **settings: str) -> Server: ...


@pytest.fixture
def texting(fresh_server: FreshServer, fake_sms: FakeSms, clock: TestClock) -> StartSms:
    """Start servers that send to the SMS test provider: `texting(in_doubt="resend")` sets `sms.in_doubt`."""

    def make(env: dict[str, str] | None = None, **settings: str) -> Server:
        variables = {f"CAMPANERO_SMS__{name.upper()}": value for name, value in settings.items()}
        defaults = {"CAMPANERO_SMS__PROBE_AFTER": "1s", "CAMPANERO_SMS__RETRY_AFTER": "1,1,1"}
        server = fresh_server(env=NO_RATE_LIMITS | defaults | (env or fake_sms.env) | variables, clock=clock)
        server.set_postal_address()
        server.client().patch("/account", {"sms_opt_out_hint": "Reply STOP to opt out"}).expect(200)
        return server

    return make
