"""HTTP APIs of email providers for tests, on one loopback port, with faults and the emails that they accepted.

For example::

    with FakeEmailApi("postmark") as api:
        server = fresh_server(env=api.env)
        api.rules.append(Rule("lost@*", accept=True, reset=True, times=1))
        [email] = api.wait_for(1)
"""

import asyncio
import itertools
import json
import threading
import time
from typing import Any, Self, cast
from urllib.parse import parse_qsl

from tests.kit.email_api_vendors import ACCESS_TOKEN, VENDORS, AcceptedEmail, BadLogin, Request, Response
from tests.kit.server import free_port
from tests.kit.sms_provider import Connection, Provider
from tests.kit.sms_rules import Rule

_NO_RULE = Rule()


class FakeEmailApi:
    """A thread that serves the API of one vendor (`email_api_vendors`); use it as a context manager."""

    def __init__(self, name: str, keep_emails: bool = True) -> None:
        self.vendor, self.port = VENDORS[name], free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.rules: list[Rule] = []
        self.accepted: list[AcceptedEmail] = []
        self.request_count = 0
        self.counters = {"open": 0, "peak": 0, "connections": 0}
        self._keep_emails = keep_emails
        self._by_key: dict[str, AcceptedEmail] = {}
        self._numbers = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()

    @property
    def env(self) -> dict[str, str]:
        """The environment of a server whose email transport is this API, with quick retries."""
        prefix = f"CAMPANERO_EMAIL__{self.vendor.name.upper()}__"
        settings = {f"{prefix}{name.upper()}": value for name, value in self.vendor.settings.items()}
        if self.vendor.token_path:
            settings[f"{prefix}LOGIN_URL"] = self.url
        return {
            "CAMPANERO_EMAIL__TRANSPORT": self.vendor.name, f"{prefix}BASE_URL": self.url, **settings,
            "CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true", "CAMPANERO_EMAIL__RETRY_AFTER": "1,1,1",
            "CAMPANERO_EMAIL__REQUEST_TIMEOUT": "2s", "CAMPANERO_EMAIL__SLOW_DOWN": "1s",
            "CAMPANERO_EMAIL__PROBE_AFTER": "1s",
        }  # fmt: skip

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._stopped, started = threading.Event(), threading.Event()
        self._started = started
        self._thread.start()
        assert started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(10)

    async def _serve(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        # `Connection` needs only the counters of a provider and `respond`
        await self._listen()
        self._started.set()
        await loop.run_in_executor(None, self._stopped.wait)
        await self._close()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()

        def connect() -> Connection:
            connection = Connection(cast(Provider, self))
            self._connections.add(connection)
            return connection

        self._server = await loop.create_server(connect, "127.0.0.1", self.port, backlog=512)

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            if connection.task is not None:
                connection.task.cancel()
            connection.transport.abort()
        self._connections.clear()

    def down(self) -> None:
        """Refuse connections until `up`."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)

    def up(self) -> None:
        """Accept connections again."""
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def to(self, address: str) -> list[AcceptedEmail]:
        """Return the accepted emails to an address."""
        return [accepted for accepted in [*self.accepted] if accepted.to == address]

    def wait_for(self, count: int, timeout: float = 30) -> list[AcceptedEmail]:
        """Wait until at least `count` emails are accepted, and return all."""
        end = time.monotonic() + timeout
        while len(self.accepted) < count:
            assert time.monotonic() < end, f"{len(self.accepted)} of {count} emails"
            time.sleep(0.01)
        return [*self.accepted]

    # -- requests ---------------------------------------------------------------------------------------------------

    async def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[Rule, Response]:
        """Return the response to a request, and the rule that applies to it."""
        self.request_count += 1
        vendor = self.vendor
        if vendor.token_path and target == vendor.token_path:
            return _NO_RULE, self._give_token(body)
        try:
            request = Request(method, target, headers, body)
            # Reading takes longer than sending, so a benchmark does without it
            email = vendor.read(request) if self._keep_emails else AcceptedEmail("", "", "", "", "", {})
        except BadLogin:
            return _NO_RULE, vendor.errors["login"]
        if method == "GET":
            rule = self._find_rule(False, "account")
            answer = (200, vendor.account, {}) if target == vendor.check_path else (404, {"message": "not found"}, {})
            return rule, self._error(rule) if rule.status is not None else answer
        if target != vendor.path:
            return _NO_RULE, (404, {"message": f"no {target}"}, {})
        rule = self._find_rule(True, email.to)
        if rule.accept or rule.cut or (rule.status is None and not rule.reset):
            email = self._take(email)
        if rule.delay:
            await asyncio.sleep(rule.delay)
        return rule, self._error(rule) if rule.status is not None else vendor.accept(email)

    def _give_token(self, body: bytes) -> Response:
        """Return an access token for the refresh token and client of the settings (RFC 6749, section 6)."""
        form, settings = dict(parse_qsl(body.decode())), self.vendor.settings
        assert form["grant_type"] == "refresh_token"
        is_right = all(form[name] == settings[name] for name in ("refresh_token", "client_id", "client_secret"))
        token = {"access_token": ACCESS_TOKEN, "expires_in": 3599, "token_type": "Bearer"}
        return (200, token, {}) if is_right else (400, {"error": "invalid_grant"}, {})

    def _take(self, email: AcceptedEmail) -> AcceptedEmail:
        """Store an email, or return the one that was accepted with the same idempotency key."""
        if email.idempotency_key and email.idempotency_key in self._by_key:
            return self._by_key[email.idempotency_key]
        email.id = f"{self.vendor.name}-{next(self._numbers)}"
        if email.idempotency_key:
            self._by_key[email.idempotency_key] = email
        self.accepted.append(email)
        return email

    def _find_rule(self, is_email: bool, to: str) -> Rule:
        for rule in [*self.rules]:
            if rule.matches(not is_email, to, "*"):
                rule.used += 1
                return rule
        return _NO_RULE

    def _error(self, rule: Rule) -> Response:
        """Return the documented response that `text` names, or the status with the body `raw`."""
        if rule.text:
            status, body, headers = self.vendor.errors[rule.text]
            return status, body, headers | (rule.headers or {})
        return rule.status or 500, rule.raw, rule.headers or {}


def fails_with(kind: str, to: str = "*", **more: Any) -> Rule:
    """Return a rule that responds with a documented error of the vendor (`Vendor.errors`)."""
    return Rule(to, status=400, text=kind, **more)


def responds(status: int, to: str = "*", body: Any = "", **more: Any) -> Rule:
    """Return a rule that responds with a status and a body."""
    return Rule(to, status=status, raw=body if isinstance(body, str) else json.dumps(body), **more)
