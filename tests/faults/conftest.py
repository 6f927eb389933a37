"""Fixtures of the fault tests: a server whose relay is the SMTP server of the kit, and the figures of each test."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.conftest import FreshServer
from tests.kit.books import Books
from tests.kit.clock import TestClock
from tests.kit.fake_sms import FakeSms
from tests.kit.recipients import UNLIMITED
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer

_HEAD = "| Test | Size | Kills | Copies | Missing | Seconds | More |\n|-|-|-|-|-|-|-|\n"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is random with one seed, and with three at full size."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", (1, 2, 3) if metafunc.config.getoption("--full") else (1,))


class Figures:
    """What a test found, for the table of all of them."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._found: dict[str, Any] = {}

    def note(self, **found: Any) -> None:
        """Keep figures by their names."""
        self._found |= found

    def books(self, books: Books, **found: Any) -> None:
        """Keep the figures of a campaign; numbers add up over several."""
        for name, value in (("size", books.audience), ("copies", books.copies), ("missing", books.missing)):
            self._found[name] = self._found.get(name, 0) + value
        self.note(**found)

    @property
    def is_noted(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self._found)

    def line(self, name: str) -> str:
        """Return them as a line of the table."""
        known = [str(self._found.pop(one, "")) for one in ("size", "kills", "copies", "missing")]
        more = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self._found.items())
        return f"| {' | '.join([name, *known, f'{time.monotonic() - self._begun:.1f}', more])} |"


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Take a test's figures; printed, and with `--figures FILE` added to the table there."""
    found = Figures()
    yield found
    if not found.is_noted:
        return
    line = found.line(f"{request.path.stem}: {request.node.name}")
    print(line)
    table = request.config.getoption("--figures")
    if table:
        path = Path(table)
        with path.open("a", encoding="utf-8") as file:
            file.write(("" if path.stat().st_size else _HEAD) + line + "\n")


class Relayed(Protocol):
    """Makes a started server with its postal address; settings by the last words of their variables."""

    def __call__(self, clock: Any = None, **settings: str) -> Server: ...


@pytest.fixture
def relayed(fresh_server: FreshServer, smtp_server: SmtpServer) -> Relayed:
    """Start servers that send to the SMTP server of the test: `relayed(in_doubt="hold")` sets `email.in_doubt`."""

    def make(clock: Any = None, **settings: str) -> Server:
        env = {f"CAMPANERO_EMAIL__{name.upper()}": value for name, value in settings.items()}
        return fresh_server(relay=smtp_server.port, env=UNLIMITED | {"CAMPANERO_EMAIL__PROBE_AFTER": "1s"} | env,
                            clock=clock)  # fmt: skip

    return make


class Texting(Protocol):
    """Makes a started server whose SMS go to the provider of the test; settings by their last words."""

    def __call__(self, env: dict[str, str] | None = None, **settings: str) -> Server: ...


@pytest.fixture
def texting(fresh_server: FreshServer, fake_sms: FakeSms, clock: TestClock) -> Texting:
    """Start servers that send to the provider of the test: `texting(in_doubt="resend")` sets `sms.in_doubt`."""

    def make(env: dict[str, str] | None = None, **settings: str) -> Server:
        found = {f"CAMPANERO_SMS__{name.upper()}": value for name, value in settings.items()}
        usual = {"CAMPANERO_SMS__PROBE_AFTER": "1s", "CAMPANERO_SMS__RETRY_AFTER": "1,1,1"}
        server = fresh_server(env=UNLIMITED | usual | (env or fake_sms.env) | found, clock=clock)
        server.give_address()
        server.client().patch("/account", {"sms_opt_out_hint": "Reply STOP to opt out"}).expect(200)
        return server

    return make
