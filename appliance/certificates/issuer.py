"""Obtain and renew the certificate of the listeners: one thread that decides when, and an order that survives a kill.

Every step is stored before the next one, so after a kill the order goes on where it was: the CA is never asked for a
second certificate of the same names within `_MIN_RENEWAL_MS`. After a failure the wait grows, also across restarts,
and a wait that the CA asks for is kept.
"""

import asyncio
import logging
import random
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


class Doors(NamedTuple):
    """Which listeners of this service can answer a challenge."""

    has_http: bool
    has_tls: bool


def find_renewal(settings: Config, state: State) -> int:
    """Return when the certificate is to be renewed, in milliseconds: 0 if there is none that fits the settings.

    It is renewed after two thirds of its lifetime, or when the CA suggests it (RFC 9773).
    """
    facts = store.read_facts(state)
    if facts is None or state.issued_by != settings.acme.directory:
        return 0
    if not all(facts.covers(name) for name in store.wanted_names(settings)):
        return 0
    planned = state.renewal_at or facts.not_before_ms + (facts.not_after_ms - facts.not_before_ms) * 2 // 3
    return min(max(planned, state.issued_at + _MIN_RENEWAL_MS), max(facts.not_after_ms, state.issued_at + _HOUR_MS))


def find_next_attempt(settings: Config, state: State) -> int:
    """Return when the CA is asked for a certificate, in milliseconds, with the wait after a failure."""
    wait_until = state.next_attempt_at if state.scope == _scope(settings) else 0
    return max(find_renewal(settings, state), wait_until)


def _scope(settings: Config) -> str:
    acme_settings = settings.acme
    return " ".join((acme_settings.directory, acme_settings.eab_key_id, *store.wanted_names(settings)))


class CertificateIssuer:
    """The thread that obtains and renews the certificate.

    `notify` is called with the stored state if the certificate expires within `NOTICE_DAYS` and could not be renewed,
    once for each certificate.
    """

    def __init__(
        self, settings: Config, challenges: LiveChallenges, doors: Doors, notify: Callable[[State], None]
    ) -> None:
        self._settings, self._challenges, self._doors, self._notify = settings, challenges, doors, notify
        self._directory = Path(settings.data_dir)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acme", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; an order in progress goes on after the next start."""
        self._stopping.set()
        loop, task = self._loop, self._task
        if loop is not None and task is not None and not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        errors = logs.RepeatedErrors(log, "certificates: check failed")
        state = store.load(self._directory)
        while not self._stopping.is_set():
            try:
                self._check(state)
            except Exception as error:
                # If the thread ended, no certificate would be renewed any more.
                errors.log(error)
                state = store.load(self._directory)
            self._stopping.wait(_CHECK_SECONDS)

    def _check(self, state: State) -> None:
        """Do what is due: ask when to renew, renew, and tell the owner about a certificate that expires."""
        now = clock.now_ms()
        if state.ask_at <= now < find_renewal(self._settings, state):
            self._ask_renewal_time(state)
        if find_next_attempt(self._settings, state) <= clock.now_ms():
            self._attempt(state)
        facts = store.read_facts(state)
        is_ending = facts is not None and facts.days_left < NOTICE_DAYS and state.failure_count > 0
        if facts is not None and is_ending and state.notified_expiry != facts.not_after_ms:
            self._notify(state)
            state.notified_expiry = facts.not_after_ms
            store.save(self._directory, state)

    def _attempt(self, state: State) -> None:
        """Ask the CA for the certificate once, and store how that ended."""
        if state.scope != _scope(self._settings):
            state.scope, state.failure_count, state.error, state.order = _scope(self._settings), 0, "", None
        # Stored before the first request, so that neither a full disk nor a process that is killed again and again
        # makes the CA see many orders.
        state.next_attempt_at = clock.now_ms() + _UNREACHABLE_WAIT_MS
        store.save(self._directory, state)
        try:
            self._run_in_loop(self._issue(state))
        except AcmeError as error:
            self._record_failure(state, error)
        except OSError:
            raise
        except Exception as error:
            log.exception("certificates: the order failed")
            self._record_failure(state, AcmeError("malformed", repr(error)))
        finally:
            self._challenges.clear()

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

    async def _issue(self, state: State) -> None:
        settings = self._settings.acme
        if state.directory != settings.directory:
            state.directory, state.account_key, state.account_url, state.order = settings.directory, "", "", None
        if not state.account_key:
            state.account_key = _create_key()
            store.save(self._directory, state)
        client = AcmeClient(settings.directory, _load_key(state.account_key), state.account_url)
        if not state.account_url:
            is_bound = settings.eab_key_id and settings.eab_hmac_key
            external = ExternalAccount(settings.eab_key_id, settings.eab_hmac_key) if is_bound else None
            state.account_url = await client.register(settings.email, external)
            store.save(self._directory, state)
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
        names = store.wanted_names(self._settings)
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
        facts_id = acme.certificate_id(_load_leaf(state.certificate)) if find_renewal(self._settings, state) else ""
        order = await client.create_order(names, facts_id)
        state.order = PendingOrder(order.url, names, _create_key())
        store.save(self._directory, state)
        log.info("certificates: ordered names=%s directory=%s", ",".join(names), state.directory)
        return order

    async def _prove(self, client: AcmeClient, url: str, attempt: int) -> None:
        """Respond to a challenge of an authorization unless it is valid. Raises AcmeError if the CA rejects it."""
        authorization = await client.fetch_authorization(url)
        if authorization.status == "pending":
            challenge = self._choose(authorization, attempt)
            answer = f"{challenge.token}.{client.thumbprint}"
            log.info("certificates: proving the host name name=%s by=%s", authorization.name, challenge.kind)
            try:
                if challenge.kind == HTTP_01:
                    self._challenges.add_http(challenge.token, answer)
                else:
                    self._challenges.add_tls(authorization.name, answer)
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
        """Return the challenge to answer: after a failure the other kind, if two listeners can answer.

        If none of ours is reached by the CA, a proxy may pass its request on to the web interface.
        """
        kinds = [kind for kind, can_answer in zip((HTTP_01, TLS_ALPN_01), self._doors, strict=True) if can_answer]
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
        store.save(self._directory, state)
        store.write_pem(self._directory, state)
        renewal = clock.iso(find_renewal(self._settings, state))
        log.info(
            "certificates: issued names=%s days_left=%s renewal=%s", ",".join(order.names), facts.days_left, renewal
        )

    def _record_failure(self, state: State, error: AcmeError) -> None:
        """Store why an attempt failed, and when the next one may be."""
        state.failure_count += 1
        state.error = str(error)
        if error.code == "accountDoesNotExist":
            state.account_url = ""
        if error.code not in _KEEPING_ORDER:
            state.order = None
        wait_ms = choose_wait(error, state.failure_count)
        state.next_attempt_at = clock.now_ms() + wait_ms
        store.save(self._directory, state)
        log.error(
            "certificates: order failed names=%s attempt=%s next_attempt=%s: %s",
            ",".join(store.wanted_names(self._settings)), state.failure_count, clock.iso(state.next_attempt_at), error,
        )  # fmt: skip

    def _ask_renewal_time(self, state: State) -> None:
        """Ask the CA when to renew the certificate, and store a time in its window (RFC 9773, 4.2)."""
        state.ask_at = clock.now_ms() + _ASK_WAIT_MS
        identifier = acme.certificate_id(_load_leaf(state.certificate))
        client = AcmeClient(self._settings.acme.directory, _load_key(state.account_key), state.account_url)

        async def ask() -> None:
            info = await client.fetch_renewal_info(identifier)
            if info is None:
                return
            state.ask_at = clock.now_ms() + max(int(info.retry_after * 1000), _MINUTE_MS)
            if not info.start * 1000 <= state.renewal_at <= info.end * 1000:
                state.renewal_at = int(random.uniform(info.start, max(info.start, info.end)) * 1000)

        try:
            self._run_in_loop(ask())
        except AcmeError as error:
            log.info("certificates: the CA did not say when to renew: %s", error)
        store.save(self._directory, state)


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
