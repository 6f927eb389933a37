"""Obtain and renew the certificates of the listeners on one thread, and continue orders after the process was killed.

Every step is stored before the next one, so after a kill the order continues with the interrupted step. The CA is never
asked for a second certificate of the same names within `_MIN_RENEWAL_MS`. After a failure the wait grows, also across
restarts, and a wait that the CA asks for is kept.
"""

import asyncio
import logging
import random
import ssl
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from appliance.certificates import acme, store
from appliance.certificates.acme import AcmeClient, AcmeError, Authorization, Challenge, ExternalAccount, Order
from appliance.certificates.challenges import LiveChallenges
from appliance.certificates.store import PendingOrder, State
from appliance.core import clock, crypto, logs
from appliance.sending.delivery import http_client
from appliance.settings.schema import Config

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

log = logging.getLogger("campanero.certificates")
_CHECK_SECONDS = 2.0
_STOP_SECONDS = 3.0
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
# Let's Encrypt allows five failed validations an hour, which these waits stay below.
_VALIDATION_WAIT_MS, _MAX_VALIDATION_WAIT_MS = 5 * _MINUTE_MS, 12 * _HOUR_MS
_UNREACHABLE_WAIT_MS, _MAX_UNREACHABLE_WAIT_MS = _MINUTE_MS, _HOUR_MS
_RATE_LIMIT_WAIT_MS = _HOUR_MS
# Let's Encrypt issues five certificates a week for the same names.
_MIN_RENEWAL_MS = 36 * _HOUR_MS
_ASK_WAIT_MS = 6 * _HOUR_MS
# After these errors the order is continued; after any other, the next attempt begins a new one.
_KEEPING_ORDER = ("unreachable", "rateLimited", "serverInternal", "badNonce")
NOTICE_DAYS = crypto.EXPIRES_SOON_DAYS
HTTP_01, TLS_ALPN_01 = "http-01", "tls-alpn-01"


class ChallengeListeners(NamedTuple):
    """Which listeners of this service can answer a challenge: over http (port 80), and over TLS (port 443)."""

    has_http: bool
    has_tls: bool


def find_renewal(settings: Config, state: State, names: list[str]) -> int:
    """Return when the certificate is to be renewed, in milliseconds.

    This is after two thirds of its lifetime, or when the CA suggests it (RFC 9773). The result is 0, that is at once,
    if there is no certificate of this CA that covers `names`.
    """
    facts = store.read_facts(state)
    if facts is None or state.issued_by != settings.acme.directory:
        return 0
    if not all(facts.covers(name) for name in names):
        return 0
    planned = state.renewal_at or facts.not_before_ms + (facts.not_after_ms - facts.not_before_ms) * 2 // 3
    return min(max(planned, state.issued_at + _MIN_RENEWAL_MS), max(facts.not_after_ms, state.issued_at + _HOUR_MS))


def find_next_attempt(settings: Config, state: State, names: list[str]) -> int:
    """Return when the CA is asked for a certificate next, in milliseconds: at the renewal, or later after a failure."""
    wait_until = state.next_attempt_at if state.scope == _scope(settings, names) else 0
    return max(find_renewal(settings, state, names), wait_until)


def _scope(settings: Config, names: list[str]) -> str:
    return " ".join((settings.acme.directory, settings.acme.eab_key_id, *names))


class CertificateIssuer:
    """The thread that obtains and renews the certificates: that of the installation, and one for each host of accounts.

    `notify` is called with the stored state if a certificate expires within `NOTICE_DAYS` and could not be renewed,
    once for each certificate. `list_hosts` returns the hosts of accounts. `served` is the web listener's certificate,
    which also serves those of these hosts.
    """

    def __init__(
        self,
        settings: Config,
        challenges: LiveChallenges,
        listeners: ChallengeListeners,
        notify: Callable[[State], None],
        list_hosts: Callable[[], list[str]],
        served: crypto.ServedCertificate | None,
    ) -> None:
        self._list_hosts, self._served = list_hosts, served
        self._directory = Path(settings.data_dir)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acme", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._tools = _Tools(settings, challenges, listeners, notify, self._run_in_loop)
        self._hosts: list[str] | None = None  # at the last check
        self._contexts: dict[str, tuple[int, ssl.SSLContext]] = {}  # by host, with `issued_at`

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; an order in progress is continued after the next start."""
        self._stopping.set()
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        errors = logs.RepeatedErrors(log, "certificates: check failed")
        orders: dict[str, _Certificate] = {}
        while not self._stopping.is_set():
            try:
                self._check_all(orders)
            except Exception as error:
                # If the thread ended, no certificate would be renewed any more.
                errors.log(error)
                orders.clear()
            self._stopping.wait(_CHECK_SECONDS)

    def _check_all(self, orders: dict[str, "_Certificate"]) -> None:
        """Do what is due for each certificate: that of the installation (key "" in `orders`) and those of the hosts."""
        hosts = self._list_hosts() if self._served is not None else []
        main = orders.get("") or _Certificate(self._tools, store.wanted_names(self._tools.settings))
        orders[""] = main
        if hosts != self._hosts:
            self._hosts = hosts
            store.remove_other_hosts(self._directory, hosts)
            for host in orders.keys() - {"", *hosts}:
                del orders[host]
        for host in hosts:
            orders[host] = orders.get(host) or _Certificate(self._tools, [host], host, main)
        states = {host: orders[host].state for host in hosts}
        # Serve the stored certificates first: an order of another host may take minutes, and fail with an error.
        self._serve_hosts(states)
        for order in (main, *(orders[host] for host in hosts)):
            if self._stopping.is_set():
                return
            issued_at = order.state.issued_at
            order.check()
            if order.state.issued_at != issued_at:
                self._serve_hosts(states)

    def _serve_hosts(self, states: dict[str, State]) -> None:
        """Make the web listener serve the certificates of the hosts.

        An expired one is served too, because the certificate of another host would not be better for a browser.
        """
        issued = {host: state for host, state in states.items() if state.certificate}
        known = {host: self._contexts[host][0] for host in self._contexts}
        if self._served is None or known == {host: state.issued_at for host, state in issued.items()}:
            return
        self._contexts = {
            host: self._contexts[host]
            if known.get(host) == state.issued_at
            else (state.issued_at, crypto.build_web_context(f"{state.certificate.rstrip()}\n{state.key}"))
            for host, state in issued.items()
        }
        self._served.serve_others({host: context for host, (_, context) in self._contexts.items()})

    def _run_in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in an event loop of this thread; `stop` cancels it."""

        async def run() -> None:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            try:
                await work
            finally:
                await http_client.close_connections()

        try:
            asyncio.run(run())
        except asyncio.CancelledError:
            log.info("certificates: the order is continued at the next start")


class _Tools(NamedTuple):
    """What all certificates share; `run` runs a coroutine, which the end of the service cancels."""

    settings: Config
    challenges: LiveChallenges
    listeners: ChallengeListeners
    notify: Callable[[State], None]
    run: Callable[[Coroutine[Any, Any, None]], None]


class _Certificate:
    """One certificate with its names, its stored state and its order.

    `host` is the host of an account, empty for the certificate of the installation. The account at the CA is that of
    `main`, the certificate of the installation.
    """

    def __init__(self, tools: _Tools, names: list[str], host: str = "", main: "_Certificate | None" = None) -> None:
        self._tools, self._settings, self._names, self._host = tools, tools.settings, names, host
        self._directory = Path(tools.settings.data_dir)
        self.state = store.load(self._directory, host)
        self._main = main or self

    def save(self) -> None:
        """Store the state. Raises OSError."""
        store.save(self._directory, self.state, self._host)

    def check(self) -> None:
        """Do what is due: ask when to renew, renew, and tell the owner about a certificate that expires."""
        state, now = self.state, clock.now_ms()
        if state.ask_at <= now < find_renewal(self._settings, state, self._names):
            self._ask_renewal_time(state)
        if find_next_attempt(self._settings, state, self._names) <= clock.now_ms():
            self._attempt(state)
        facts = store.read_facts(state)
        is_ending = facts is not None and facts.days_left < NOTICE_DAYS and state.failure_count > 0
        if facts is not None and is_ending and state.notified_expiry != facts.not_after_ms:
            self._tools.notify(state)
            state.notified_expiry = facts.not_after_ms
            self.save()

    def _attempt(self, state: State) -> None:
        """Ask the CA for the certificate once, and store how that ended."""
        scope = _scope(self._settings, self._names)
        if state.scope != scope:
            state.scope, state.failure_count, state.error, state.order = scope, 0, "", None
        # Stored before the first request, so that neither a full disk nor a process that is killed again and again
        # makes the CA see many orders.
        state.next_attempt_at = clock.now_ms() + _UNREACHABLE_WAIT_MS
        self.save()
        try:
            self._tools.run(self._issue(state))
        except AcmeError as error:
            self._record_failure(state, error)
        except OSError:
            raise
        except Exception as error:
            log.exception("certificates: the order failed")
            self._record_failure(state, AcmeError("malformed", repr(error)))
        finally:
            self._tools.challenges.clear()

    async def _issue(self, state: State) -> None:
        settings, account = self._settings.acme, self._main.state
        if account.directory != settings.directory:
            account.directory, account.account_key, account.account_url, account.order = (
                settings.directory, "", "", None
            )  # fmt: skip
        if state.directory != settings.directory:
            state.directory, state.order = settings.directory, None
        if not account.account_key:
            account.account_key = _create_key()
            self._main.save()
        client = AcmeClient(settings.directory, _load_key(account.account_key), account.account_url)
        if not account.account_url:
            is_bound = settings.eab_key_id and settings.eab_hmac_key
            external = ExternalAccount(settings.eab_key_id, settings.eab_hmac_key) if is_bound else None
            account.account_url = await client.register(settings.email, external)
            self._main.save()
        order = await self._open_order(client, state)
        if order.status == "pending":
            for url in order.authorizations:
                await self._prove(client, url, state.failure_count)
            order = await client.fetch_order(order.url)
        pending = state.order
        assert pending is not None  # `_open_order` set it
        if order.status == "ready":
            await client.finalize(order, _build_request(pending))
        order = await client.wait_for_order(order.url)
        if order.status != "valid":
            raise AcmeError(
                "unreachable" if order.status == "processing" else "orderInvalid",
                order.error or f"the order is {order.status}",
            )
        self._accept(state, pending, await client.download(order))

    async def _open_order(self, client: AcmeClient, state: State) -> Order:
        """Return the stored order if it can still lead to a certificate, else a new one, which is stored."""
        names = self._names
        if state.order is not None and state.order.names == names:
            try:
                order = await client.fetch_order(state.order.url)
            except AcmeError as error:
                if error.code in _KEEPING_ORDER:
                    raise
            else:
                if order.status != "invalid":
                    log.info("certificates: continuing the order names=%s status=%s", ",".join(names), order.status)
                    return order
        replaces = find_renewal(self._settings, state, self._names) > 0
        facts_id = acme.certificate_id(_load_leaf(state.certificate)) if replaces else ""
        order = await client.create_order(names, facts_id)
        state.order = PendingOrder(order.url, names, _create_key())
        self.save()
        log.info("certificates: ordered names=%s directory=%s", ",".join(names), state.directory)
        return order

    async def _prove(self, client: AcmeClient, url: str, attempt: int) -> None:
        """Respond to a challenge of a pending authorization, and wait for the result.

        Raises AcmeError unless the authorization is valid then.
        """
        authorization = await client.fetch_authorization(url)
        if authorization.status == "pending":
            challenge = self._choose(authorization, attempt)
            answer = f"{challenge.token}.{client.thumbprint}"
            log.info("certificates: proving the host name name=%s by=%s", authorization.name, challenge.kind)
            try:
                if challenge.kind == HTTP_01:
                    self._tools.challenges.add_http(challenge.token, answer)
                else:
                    self._tools.challenges.add_tls(authorization.name, answer)
            except ValueError as error:
                raise AcmeError("malformed", str(error)) from None
            if challenge.status == "pending":
                await client.accept_challenge(challenge)
            authorization = await client.wait_for_authorization(url)
        if authorization.status == "pending":
            raise AcmeError("unreachable", f"{authorization.name}: the CA has not checked the host name yet")
        if authorization.status != "valid":
            reason = authorization.error or f"the proof of the host name is {authorization.status}"
            raise AcmeError("unauthorized", f"{authorization.name}: {reason}")

    def _choose(self, authorization: Authorization, attempt: int) -> Challenge:
        """Return the challenge to answer; its kind alternates between attempts if both listeners can answer.

        If no listener can, it is an HTTP-01 challenge, because a proxy may forward the CA's request to the web
        interface. Raises AcmeError if the CA offers no suitable challenge.
        """
        kinds = [
            kind for kind, can_answer in zip((HTTP_01, TLS_ALPN_01), self._tools.listeners, strict=True) if can_answer
        ]
        kinds = kinds or [HTTP_01]
        start = attempt % len(kinds)
        for kind in (*kinds[start:], *kinds[:start]):
            for challenge in authorization.challenges:
                if challenge.kind == kind:
                    return challenge
        types = " or ".join(kinds)
        raise AcmeError("unauthorized", f"{authorization.name}: the CA offers no challenge of type {types}")

    def _accept(self, state: State, order: PendingOrder, chain: str) -> None:
        """Check, store and serve a new certificate. Raises AcmeError if it cannot be used."""
        try:
            facts = crypto.parse_certificate("acme", "the response of the CA", chain.encode())
            is_own = _load_leaf(chain).public_key() == _load_key(order.key).public_key()
        except (OSError, ValueError) as error:
            raise AcmeError("malformed", str(error)) from None
        if not is_own or not all(facts.covers(name) for name in order.names):
            raise AcmeError("malformed", "the CA issued a certificate for another key or another name")
        if facts.validity_error:
            raise AcmeError("malformed", f"{facts.validity_error} by the clock of this machine, which may be wrong")
        state.certificate, state.key, state.issued_by = chain, order.key, state.directory
        state.issued_at, state.renewal_at, state.ask_at = clock.now_ms(), 0, 0
        state.order, state.next_attempt_at, state.failure_count, state.error = None, 0, 0, ""
        self.save()
        if not self._host:
            store.write_pem(self._directory, state)
        renewal = clock.iso(find_renewal(self._settings, state, self._names))
        log.info(
            "certificates: issued names=%s days_left=%s renewal=%s", ",".join(order.names), facts.days_left, renewal
        )

    def _record_failure(self, state: State, error: AcmeError) -> None:
        """Store why an attempt failed, and when the next one may be."""
        state.failure_count += 1
        state.error = str(error)
        if error.code == "accountDoesNotExist":
            self._main.state.account_url = ""
            self._main.save()
        if error.code not in _KEEPING_ORDER:
            state.order = None
        wait_ms = choose_wait(error, state.failure_count)
        state.next_attempt_at = clock.now_ms() + wait_ms
        self.save()
        log.error(
            "certificates: order failed names=%s attempt=%s next_attempt=%s: %s",
            ",".join(self._names), state.failure_count, clock.iso(state.next_attempt_at), error,
        )  # fmt: skip

    def _ask_renewal_time(self, state: State) -> None:
        """Ask the CA when to renew the certificate, and store a time in its window (RFC 9773, 4.2)."""
        state.ask_at = clock.now_ms() + _ASK_WAIT_MS
        identifier = acme.certificate_id(_load_leaf(state.certificate))
        account = self._main.state
        client = AcmeClient(self._settings.acme.directory, _load_key(account.account_key), account.account_url)

        async def ask() -> None:
            info = await client.fetch_renewal_info(identifier)
            if info is None:
                return
            state.ask_at = clock.now_ms() + max(int(info.retry_after * 1000), _MINUTE_MS)
            if not info.start * 1000 <= state.renewal_at <= info.end * 1000:
                state.renewal_at = int(random.uniform(info.start, max(info.start, info.end)) * 1000)

        try:
            self._tools.run(ask())
        except AcmeError as error:
            log.info("certificates: the CA did not say when to renew: %s", error)
        self.save()


def choose_wait(error: AcmeError, failure_count: int) -> int:
    """Return the milliseconds until the next attempt: at least what the CA asks for, and longer after each failure.

    A tenth more or less is random, so that installations do not ask together.
    """
    if error.code == "rateLimited":
        wait_ms = int((error.retry_after or 0) * 1000) or _RATE_LIMIT_WAIT_MS
        return int(wait_ms * random.uniform(1.0, 1.1))
    is_unreachable = error.code in _KEEPING_ORDER
    first, longest = (
        (_UNREACHABLE_WAIT_MS, _MAX_UNREACHABLE_WAIT_MS)
        if is_unreachable
        else (_VALIDATION_WAIT_MS, _MAX_VALIDATION_WAIT_MS)
    )
    wait_ms = min(first * 2 ** min(failure_count - 1, 20), longest)
    return int(max(wait_ms, (error.retry_after or 0) * 1000) * random.uniform(1.0, 1.1))


def _create_key() -> str:
    """Return a new key for ECDSA with P-256, as PEM."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return (
        ec.generate_private_key(ec.SECP256R1())
        .private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        .decode()
    )  # fmt: skip


def _load_key(pem: str) -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = serialization.load_pem_private_key(pem.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)  # `_create_key` creates no others
    return key


def _load_leaf(chain: str) -> "x509.Certificate":
    from cryptography import x509

    return x509.load_pem_x509_certificates(chain.encode())[0]


def _build_request(order: PendingOrder) -> bytes:
    """Return the certificate signing request of an order in DER (RFC 8555, 7.4)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    names = x509.SubjectAlternativeName([x509.DNSName(name) for name in order.names])
    builder = x509.CertificateSigningRequestBuilder(x509.Name([])).add_extension(names, False)
    return builder.sign(_load_key(order.key), hashes.SHA256()).public_bytes(serialization.Encoding.DER)
