"""SMTP submission (RFC 6409): programs sign in with an API key, and their mail becomes messages of its account.

Port 587 requires STARTTLS, and port 465 begins with TLS. Clients must start TLS first and then sign in; until then all
other commands are refused. An email is accepted once it is on disk (`sending/messages/submitted.py`).
"""

import asyncio
import logging
import re
import ssl
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session, TLSSetupException

from appliance.accounts import access, limits, request_limits
from appliance.accounts.access import SubmissionKey
from appliance.audience import consent
from appliance.certificates import store
from appliance.core import addresses, clock, crypto
from appliance.core.addresses import Address
from appliance.core.clock import iso
from appliance.core.errors import RateLimitExceeded, Unavailable
from appliance.inbound.smtp_sessions import ConnectionLimiter, SessionLimits, SmtpSession, ThreadedServer, open_socket
from appliance.sending.domains import records
from appliance.sending.messages import attachments, raw_mime, senders, submission_limits, submitted, system_emails
from appliance.sending.messages.raw_mime import RawEmail
from appliance.sending.messages.sender_headers import Malformed
from appliance.sending.messages.submitted import KeyRevoked, Queued, Submission
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage import transactions
from appliance.storage.database import scalar
from appliance.storage.models import Account

log = logging.getLogger("campanero.submission")
# 25 MB of files in base64, as in the API, and some text.
MAX_MESSAGE_BYTES = 36 * 1_048_576
MAX_RECIPIENTS = 100
MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS = 200, 20
# The maximum number of signed-in sessions of an account. They stay open between messages; half of the connections is
# left for other accounts.
MAX_ACCOUNT_SESSIONS = MAX_CONNECTIONS // 2
# The maximum number of bytes of the emails that are being received, in all and of one account. Beyond it, emails of
# more than `_SMALL_BYTES` are refused temporarily.
MAX_RECEIVING_BYTES, _SMALL_BYTES = 256 * 1_048_576, 1_048_576
MAX_ACCOUNT_BYTES = 2 * MAX_MESSAGE_BYTES + _SMALL_BYTES
# A message must arrive within a minute, plus a minute for each of these numbers of bytes, but within ten minutes at
# most.
MIN_BYTES_PER_MINUTE, MAX_RECEIVING_MINUTES = 1_048_576, 10
_READ_BYTES = 8 * 1_048_576
_END_OF_MESSAGE = b"\r\n.\r\n"
# The delay of the reply to a failed sign-in, doubled with each further failure of the client or the user name.
_FIRST_DELAY_SECONDS, _MAX_DELAY_SECONDS = 0.25, 4.0
_MAX_NAME_CHARACTERS = 255
_SENDER_CACHE_SECONDS, _MAX_CACHED_SENDERS = 2.0, 1_000
# A plain address in angle brackets (RFC 5321, 4.1.2), which needs no parser; aiosmtpd parses all other addresses.
_PLAIN_PATH = re.compile(r"<([A-Za-z0-9._+=-]{1,64}@[A-Za-z0-9.-]{1,253})>([ -~]*)")
# Characters of source routing, such as `user%other.example@host`, which old servers relay to the other host.
_ROUTING = re.compile(r"[%!@:/]")


class ReceivingBudget:
    """The number of bytes that are being received, in all and for each account. Use it only in one event loop.

    Each account has a limit below that of all accounts, so that one account does not keep out the large emails of
    others.
    """

    def __init__(self) -> None:
        self._bytes: Counter[int] = Counter()

    def take(self, account_id: int, size: int, message_size: int) -> bool:
        """Count received bytes of an account; return False if its message must be refused temporarily.

        `message_size` is the size of the message so far; small messages are always accepted.
        """
        self._bytes[account_id] += size
        if message_size <= _SMALL_BYTES:
            return True
        return self._bytes[account_id] <= MAX_ACCOUNT_BYTES and self._bytes.total() <= MAX_RECEIVING_BYTES

    def give_back(self, account_id: int, size: int) -> None:
        """Subtract bytes of an account, because its message was processed or refused."""
        self._bytes[account_id] -= size
        if self._bytes[account_id] <= 0:
            del self._bytes[account_id]


class SubmissionState(Session):
    """The state of a session. It redefines the attribute `login_data`, whose use in aiosmtpd logs a warning."""

    login_data: Any = None


class SubmissionEnvelope(Envelope):
    """The envelope of a message, with its parsed recipients."""

    def __init__(self) -> None:
        super().__init__()
        self.recipients: list[Address] = []


class SubmissionSession(SmtpSession):
    """The server side of a submission session: first TLS, then AUTH, then messages."""

    log_name = "submission"
    limits: ClassVar = SessionLimits(
        message_bytes=MAX_MESSAGE_BYTES, session_bytes=4_096 * 1_048_576,
        unprocessed_bytes=MAX_MESSAGE_BYTES + 1_048_576, message_lines=raw_mime.MAX_LINES, idle_seconds=120.0,
        commands={
            "MAIL": 100_000, "RCPT": 1_000_000, "DATA": 100_000, "RSET": 100_000, "NOOP": 1_000, "AUTH": 6, "*": 30,
        },
        # Only a program that has signed in keeps its session, and it may wait with its next message.
        message_seconds=None,
    )  # fmt: skip
    AuthLoginUsernameChallenge, AuthLoginPasswordChallenge = "Username:", "Password:"

    def __init__(
        self, handler: "SubmissionHandler", limiter: ConnectionLimiter, hostname: str, tls: ssl.SSLContext,
        is_tls_first: bool,
    ) -> None:  # fmt: skip
        super().__init__(
            handler, limiter, hostname, tls, require_starttls=True, auth_required=True, auth_require_tls=True,
            authenticator=_pass_on,
        )  # fmt: skip
        self._handler, self._is_tls_first, self._is_silent = handler, is_tls_first, False
        self._early_bytes = b""
        self._counted_bytes = 0  # the bytes of the current message that count in the budget

    def _create_session(self) -> SubmissionState:
        return SubmissionState(asyncio.get_running_loop())

    def _create_envelope(self) -> SubmissionEnvelope:
        return SubmissionEnvelope()

    def data_received(self, data: bytes) -> None:
        """Process received bytes; on a port that begins with TLS, those before the handshake are stored for it."""
        if self._is_tls_first and self._original_transport is None:
            self._early_bytes += data
        else:
            super().data_received(data)

    def _pass_early_bytes(self) -> None:
        protocol: Any = self._tls_protocol
        while self._early_bytes and protocol is not None:
            buffer = protocol.get_buffer(len(self._early_bytes))
            size = min(len(buffer), len(self._early_bytes))
            buffer[:size] = self._early_bytes[:size]
            self._early_bytes = self._early_bytes[size:]
            protocol.buffer_updated(size)

    async def _handle_client(self) -> None:
        """Start TLS if the port begins with it, as after STARTTLS but without its reply, and then read commands."""
        if self._is_tls_first:
            try:
                self._is_silent = True
                # This runs when `smtp_STARTTLS` waits for the handshake.
                asyncio.get_running_loop().call_soon(self._pass_early_bytes)
                await self.smtp_STARTTLS("")
            except TLSSetupException:
                if self.transport is not None:
                    self.transport.close()
                return
            finally:
                self._is_silent = False
        await super()._handle_client()

    async def push(self, status: Any) -> None:
        """Write a reply, unless replies are suppressed during the start of TLS."""
        if not self._is_silent:
            await super().push(status)

    # These are methods, not properties, because the constructor of aiosmtpd reads all attributes.

    def connection_lost(self, error: Exception | None) -> None:
        """Release the session of the account; aiosmtpd cancels the running command, such as a sign-in."""
        super().connection_lost(error)
        self._handler.close_session(self)

    def get_client(self) -> str:
        """Return the IP address of the client."""
        peer = self.session.peer if self.session is not None else None
        return str((peer or ("?",))[0])

    def get_key(self) -> SubmissionKey:
        """Return the API key with which the session has signed in; call it only after AUTH."""
        assert self.session is not None
        key = self.session.auth_data
        assert isinstance(key, SubmissionKey)
        return key

    async def smtp_AUTH(self, arg: str | None) -> None:
        """Sign in with PLAIN or LOGIN; the name of the mechanism may be in lower case (RFC 4422, 3.1)."""
        mechanism, separator, rest = (arg or "").partition(" ")
        await SMTP.smtp_AUTH(self, mechanism.upper() + separator + rest)

    async def auth_PLAIN(self, _: Any, args: list[str]) -> AuthResult:
        """Sign in with user name and password in one response (RFC 4616)."""
        return await self._sign_in(await super().auth_PLAIN(_, args))

    async def auth_LOGIN(self, _: Any, args: list[str]) -> AuthResult:
        """Sign in with user name and password in two responses."""
        return await self._sign_in(await super().auth_LOGIN(_, args))

    async def _sign_in(self, given: AuthResult) -> AuthResult:
        if not given.success:
            return given
        login, secret = given.auth_data or (b"", b"")
        name, password = login.decode("utf-8", "replace"), secret.decode("utf-8", "replace")
        try:
            key = await sign_in(name, password, self.get_client())
        except RateLimitExceeded as error:
            words = f"454 4.7.0 Too many failed attempts, try again in {error.retry_after} seconds"
            return AuthResult(success=False, handled=False, message=words)
        except Unavailable:
            return AuthResult(success=False, handled=False, message="454 4.3.0 Try again later")
        if key is None:
            words = "535 5.7.8 Sign in with the name of an API key as user name, and the key as password"
            return AuthResult(success=False, handled=False, message=words)
        if not self._handler.open_session(self, key.account_id):
            words = f"454 4.7.0 The account has {MAX_ACCOUNT_SESSIONS} sessions already, try again later"
            return AuthResult(success=False, handled=False, message=words)
        self.begin_work()
        return AuthResult(success=True, auth_data=key)

    def _getaddr(self, arg: str) -> tuple[str | None, str | None]:
        """Return address and parameters of MAIL or RCPT; (None, None) for a source route (RFC 5321, appendix C)."""
        match = _PLAIN_PATH.fullmatch(arg)
        if match:
            return match[1], match[2].strip()
        if arg.lstrip().startswith("<@"):
            return None, None
        return super()._getaddr(arg)

    async def smtp_DATA(self, arg: str | None) -> None:
        """Receive a message, and reply once it is on disk or refused."""
        if await self.check_helo_needed() or await self.check_auth_needed("DATA"):
            return
        envelope = self.envelope
        assert isinstance(envelope, SubmissionEnvelope)
        if not envelope.recipients:
            await self.push("503 5.5.1 Error: need RCPT command")
            return
        if arg:
            await self.push("501 5.5.4 Syntax: DATA")
            return
        await self.push("354 End data with <CR><LF>.<CR><LF>")
        self._unread = self._lines = 0
        self._in_message = True
        account_id = self.get_key().account_id
        try:
            content, refusal = await self._receive(account_id)
            self._in_message = False
            reply = refusal or await self._handler.accept(self, envelope, content or b"")
        finally:
            self._handler.budget.give_back(account_id, self._counted_bytes)
            self._counted_bytes = 0
            self._unread, self._in_message = 0, False
            self._set_post_data_state()  # type: ignore[no-untyped-call]  # untyped in the library
        await self.push(reply)

    async def _receive(self, account_id: int) -> tuple[bytes | None, str]:
        """Return (message, ""), or (None, refusal) with the SMTP reply.

        The dots that the client added at the beginnings of lines are removed (RFC 5321, 4.5.2). Reading in large pieces
        takes a tenth of the time of reading lines. Raises ConnectionResetError if the message does not arrive in time.
        """
        data, size, refusal, started_at = bytearray(b"\r\n"), 0, "", clock.monotonic()
        content, budget = None, self._handler.budget
        while True:
            piece = await self._reader.read(_READ_BYTES)
            if not piece:
                raise ConnectionResetError
            self._reset_timeout()
            self._unread = 0
            size += len(piece)
            if clock.monotonic() - started_at > get_receiving_seconds(size):
                self.end(b"421 4.4.2 The message arrives too slowly\r\n")
                raise ConnectionResetError
            start = max(0, len(data) - len(_END_OF_MESSAGE) + 1)
            data += piece
            end = data.find(_END_OF_MESSAGE, start)
            if not refusal:
                self._counted_bytes += len(piece)
                if not budget.take(account_id, len(piece), size):
                    refusal = "452 4.3.1 Too many large messages at once, try again later"
            rest = bytes(data[end + len(_END_OF_MESSAGE) :]) if end >= 0 else b""
            if size - len(rest) > MAX_MESSAGE_BYTES + len(_END_OF_MESSAGE):
                refusal = refusal or f"552 5.3.4 The message has more than {MAX_MESSAGE_BYTES} bytes"
            if end >= 0:
                if rest:
                    self._reader.feed_data(rest)
                content = None if refusal else bytes(data[2 : end + 2])
                break
            if refusal:
                del data[: -len(_END_OF_MESSAGE)]
                budget.give_back(account_id, self._counted_bytes)
                self._counted_bytes = 0
        if content is not None and (content.startswith(b".") or b"\r\n." in content):
            content = (b"\r\n" + content).replace(b"\r\n.", b"\r\n")[2:]
        return content, refusal


def get_receiving_seconds(size: int) -> float:
    """Return how many seconds the first `size` bytes of a message may take to arrive."""
    return 60 * min(MAX_RECEIVING_MINUTES, 1 + size / MIN_BYTES_PER_MINUTE)


def _pass_on(server: Any, session: Any, envelope: Any, mechanism: str, auth_data: Any) -> AuthResult:
    """Return user name and password unchecked: `SubmissionSession` checks them, because that needs `await`."""
    return AuthResult(success=True, auth_data=auth_data)


async def sign_in(name: str, password: str, client: str) -> SubmissionKey | None:
    """Return the API key with which a program signs in; None, after a delay, if user name or key is wrong.

    Failures are limited for each pair of client network and user name, so that other clients, or other programs behind
    the same address, cannot lock a program out. All failures of the client, and all with the user name, make the delay
    longer. Raises RateLimitExceeded.
    """
    network, user = addresses.client_network(client), name.strip().casefold()[:_MAX_NAME_CHARACTERS]
    with request_limits.limit_attempt(f"submission:{network}:{user}") as attempt:
        key = await transactions.fetch(access.find_submission_key, name, password)
        if key is not None:
            return key
        attempt.fail()
        failure_count = request_limits.record_failure(f"submission client:{network}", f"submission user:{user}")
        log.info("submission: sign-in failed client=%s failures=%s", client, failure_count)
        await asyncio.sleep(min(_MAX_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2 ** min(failure_count - 1, 10)))
    return None


class SubmissionHandler:
    """The aiosmtpd handler of all submission sessions, which checks recipients and queues messages."""

    def __init__(self) -> None:
        self.budget = ReceivingBudget()
        self._accounts: dict[SubmissionSession, int] = {}  # the account that each session has signed in to
        self._allowed_until: dict[tuple[SubmissionKey, tuple[str, ...], bool], float] = {}
        # Large emails are parsed on a thread, so that they do not block the event loop.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="submission-reader")

    def close(self) -> None:
        """Stop parsing emails, without waiting for an email that is being parsed."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    def open_session(self, session: SubmissionSession, account_id: int) -> bool:
        """Count a session as one of an account, or return False if the account has `MAX_ACCOUNT_SESSIONS`."""
        if [*self._accounts.values()].count(account_id) >= MAX_ACCOUNT_SESSIONS:
            return False
        self._accounts[session] = account_id
        return True

    def close_session(self, session: SubmissionSession) -> None:
        """Count a session no longer as one of its account."""
        self._accounts.pop(session, None)

    async def handle_EHLO(
        self, server: SubmissionSession, session: Any, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        """Return the EHLO reply with enhanced status codes (RFC 2034)."""
        session.host_name = hostname
        return [*responses[:-1], "250-ENHANCEDSTATUSCODES", responses[-1]]

    async def handle_RCPT(
        self, server: SubmissionSession, session: Any, envelope: SubmissionEnvelope, address: str, options: list[str]
    ) -> str:
        """Accept a recipient, or return the reply that refuses it.

        A suppressed or invalid address is refused, as are recipients beyond `MAX_RECIPIENTS` or the key's hourly limit.
        """
        if len(envelope.recipients) >= MAX_RECIPIENTS:
            return "452 4.5.3 Too many recipients"
        parsed = _parse_recipient(address)
        if parsed is None:
            return "553 5.1.3 The address is not valid"
        if any(known.key == parsed.key for known in envelope.recipients):
            return "250 2.1.5 OK, the same recipient"
        try:
            refusal = transactions.fetch_inline(_find_suppression, server.get_key().account_id, parsed)
        except Unavailable:
            return "451 4.3.0 Try again later"
        if refusal:
            return refusal
        key = server.get_key()
        try:
            submission_limits.check(key.id, key.hourly_limit, len(envelope.recipients) + 1)
        except RateLimitExceeded as error:
            return await _report_limit(key, error)
        envelope.recipients.append(parsed)
        envelope.rcpt_tos.append(parsed.value)
        return "250 2.1.5 OK"

    async def accept(self, server: SubmissionSession, envelope: SubmissionEnvelope, content: bytes) -> str:
        """Queue a message for its recipients and return the SMTP reply: 250 once everything is on disk."""
        key, recipients = server.get_key(), envelope.recipients
        try:
            if len(content) > _SMALL_BYTES:
                loop = asyncio.get_running_loop()
                email = await loop.run_in_executor(self._reader, raw_mime.parse, content, len(recipients))
            else:
                email = raw_mime.parse(content, len(recipients))
            sender = _get_sender(email, envelope.mail_from or "")
            if refusal := await self._find_sender_fault(key, email, sender):
                return refusal
            queued = await self._queue(key, email, sender, recipients)
        except Malformed as error:
            return f"{error.reply_code} {error}"
        except RateLimitExceeded as error:
            return await _report_limit(key, error)
        except KeyRevoked:
            return "550 5.7.1 The API key was revoked"
        except (Unavailable, OSError) as error:
            log.info("submission: email deferred: %s", error)
            return "452 4.3.1 The storage is unavailable, try again later"
        # The ledger has a row for each email, so this is only logged at the level DEBUG.
        log.debug(
            "submission: email accepted key=%s bytes=%s recipients=%s repeated=%s",
            key.id, len(content), len(queued.messages), queued.repeated_count,
        )  # fmt: skip
        if queued.is_refused:
            return _describe_refused(queued)
        number = queued.messages[0].id if queued.messages else "sent before"
        return f"250 2.0.0 OK {number}"

    async def _find_sender_fault(self, key: SubmissionKey, email: RawEmail, sender: str) -> str | None:
        """Return the reply for an email that the account may not send, or None if it may.

        That it may is cached for `_SENDER_CACHE_SECONDS`; the domain is checked again when the message is sent.
        """
        checked = (key, (sender, *email.senders), email.is_marketing)
        if clock.monotonic() >= self._allowed_until.get(checked, 0):
            if refusal := await transactions.fetch(_find_sender_fault, key, email, sender):
                return refusal
            if len(self._allowed_until) >= _MAX_CACHED_SENDERS:
                self._allowed_until.clear()
            self._allowed_until[checked] = clock.monotonic() + _SENDER_CACHE_SECONDS
        return None

    @staticmethod
    async def _queue(key: SubmissionKey, email: RawEmail, sender: str, recipients: Sequence[Address]) -> Queued:
        sha256 = None
        if len(email.content) > submitted.MAX_ROW_BYTES:
            sha256 = await asyncio.to_thread(submitted.store_large, email)
        try:
            submission = Submission(
                key.account_id, key.id, key.is_test, email, sender, recipients, sha256, key.hourly_limit
            )
            return await asyncio.wrap_future(transactions.submit_record(submitted.queue, submission))
        finally:
            if sha256 is not None:
                attachments.release_raw(sha256)

    async def handle_exception(self, error: Exception) -> str:
        """Log an unexpected error, and return a reply without details; a failed TLS handshake was already logged."""
        if not isinstance(error, TLSSetupException):
            log.error("submission: session failed: %r", error)
        return "451 4.3.0 Internal error, try again later"


def _parse_recipient(address: str) -> Address | None:
    """Return a recipient, or None if no mail can be sent to the address, or if it contains source routing."""
    if _ROUTING.search(address.rpartition("@")[0]):
        return None
    try:
        return addresses.parse_email(address)
    except ValueError:
        return None


async def _report_limit(key: SubmissionKey, error: RateLimitExceeded) -> str:
    """Return the reply for an exceeded limit; if it is the hourly limit of the key, also email the owners.

    The job `limits` emails the owners about a limit of the account.
    """
    if error.extra.get("reason") == limits.ERROR_CODE:
        return f"450 4.7.1 {error.message} Try again in {-(-error.retry_after // 3600)} hours"
    log.warning("submission: hourly limit reached key=%s limit=%s", key.id, key.hourly_limit)
    try:
        await transactions.commit(system_emails.report_submission_limit, key.id, key.hourly_limit)
    except Unavailable as unavailable:
        log.info("submission: notice deferred: %s", unavailable)
    minutes = -(-error.retry_after // 60)
    return (
        f"450 4.7.1 The API key reached its limit of {key.hourly_limit} recipients per hour, try in {minutes} minutes"
    )


def _find_suppression(account_id: int, address: Address) -> str | None:
    """Return the reply for a suppressed recipient, with the reason and the date; None if it is not suppressed."""
    hashed = crypto.hash_address("email", address.key)
    reason = consent.find_suppression_reason(account_id, "email", hashed)
    if reason is None:
        return None
    since = scalar(
        "SELECT min(created_at) FROM suppression WHERE account_id = ? AND kind = 'email' AND address_hash = ? "
        "AND reason = ?",
        (account_id, hashed, reason),
    )
    date = str(iso(since))[:10] if since else "unknown"
    page = f"{config.base_url(config.current())}/suppressions"
    return f"550 5.1.1 {address.value} is suppressed since {date} ({reason.replace('_', ' ')}), see {page}"


def _get_sender(email: RawEmail, mail_from: str) -> str:
    """Return the address in From, or the envelope sender if there is no From. Raises Malformed if there is neither."""
    if email.senders:
        return email.senders[0]
    try:
        return addresses.parse_email(mail_from).value
    except ValueError:
        raise Malformed("The message has no From header") from None


def _find_sender_fault(key: SubmissionKey, email: RawEmail, sender: str) -> str | None:
    """Return the reply for an email that the account may not send, or None. All addresses in From and Sender count."""
    account = Account.get_by_id(key.account_id)
    if not account.transactional_allowed and not email.is_marketing:
        return "550 5.7.1 Single messages are disabled in this account"
    transport = "capture" if key.is_test else config.current().email.transport
    base_url = config.base_url(config.current())
    for address in dict.fromkeys((sender, *email.senders)):
        problems = senders.find_email_problems(account, address, transport, email.is_marketing)
        if any(field == "from_email" for field, _ in problems):
            domain = records.domain_of_address(address)
            return f"550 5.7.1 {domain} is not a verified domain of this account, see {base_url}/settings/domains"
        if problems:
            return f"550 5.7.1 Marketing needs the postal address of the brand, see {base_url}/settings/brand"
    return None


def _describe_refused(queued: Queued) -> str:
    reason = str(queued.messages[0].skip_reason)
    if reason.startswith("suppressed_"):
        return f"550 5.1.1 The recipient is suppressed ({reason.removeprefix('suppressed_').replace('_', ' ')})"
    return f"550 5.7.1 The recipient may not get marketing ({reason.replace('_', ' ')})"


class SubmissionServer(ThreadedServer):
    """The SMTP servers for programs; they listen only if `submission.listen` or `submission.listen_tls` is set."""

    def __init__(self, settings: Config) -> None:
        super().__init__("submission")
        self._settings = settings
        self.certificate: crypto.ServedCertificate | None = None
        self.limiter = ConnectionLimiter(MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS)

    def bind(self) -> None:
        """Load the certificate and bind the addresses, before `start`; raises OSError if one cannot be used."""
        listening = self._list_addresses()
        if not listening:
            return
        self.certificate = store.load_served(self._settings, config.get_submission_certificate(self._settings).setting)
        self.sockets = [open_socket(f"submission.{name}", address) for name, address in listening]

    def _list_addresses(self) -> list[tuple[str, str]]:
        """Return (name, address) of each listener setting that is set."""
        submission = self._settings.submission
        settings = (("listen", submission.listen), ("listen_tls", submission.listen_tls))
        return [(name, address) for name, address in settings if address]

    async def _serve(self) -> None:
        assert self.certificate is not None
        handler, name, tls = SubmissionHandler(), config.get_mail_host(self._settings), self.certificate.context

        def build(is_tls_first: bool) -> Any:
            return lambda: SubmissionSession(handler, self.limiter, name, tls, is_tls_first)

        listening = self._list_addresses()
        log.info("submission: listening addresses=%s", ", ".join(address for _, address in listening))
        await self._accept(*(build(setting == "listen_tls") for setting, _ in listening))
        handler.close()
