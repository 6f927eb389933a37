"""Send email over a provider's HTTP API (`sending/transports`), one message at a time."""

import time
from collections.abc import Callable

from appliance.core.errors import ClientRejected, DeliveryError
from appliance.sending.messages import ledger
from appliance.sending.messages.ledger import Outcome, OutgoingMessage
from appliance.sending.transports import TRANSPORTS
from appliance.sending.transports.base import OutgoingEmail
from appliance.sending.workers.email_rate_limits import EmailRateLimits
from appliance.sending.workers.request_worker import RequestWorker
from appliance.settings import config, transports


class HttpWorker(RequestWorker[EmailRateLimits]):
    """A worker that sends each email with one request to the transport of its ledger row."""

    async def _transmit(self, prepared: OutgoingMessage, outcome: Outcome, check: Callable[[], None]) -> None:
        row, settings = outcome.row, config.current()
        kind = transports.get_kind(row.provider, settings.email)
        outcome.subject, outcome.internet_message_id = prepared.subject, prepared.internet_message_id
        if kind not in TRANSPORTS:
            raise ClientRejected(f"the transport {row.provider} no longer exists")
        # The settings may have been changed since the message was queued. Those of further transports are complete.
        faults = config.find_missing_settings(settings, kind) if kind == row.provider else []
        if faults:
            raise ClientRejected(f"{row.provider} is no longer configured: {'; '.join(faults)}")
        email = OutgoingEmail(prepared.envelope, prepared.internet_message_id, not row.transactional)
        own_settings = transports.build_settings(row.provider, settings.email)
        outcome.provider_id = await TRANSPORTS[kind].send(email, check, own_settings)

    async def _send(self, prepared: OutgoingMessage, outcome: Outcome, revision: int) -> DeliveryError | None:
        started_at = time.monotonic()
        error = await super()._send(prepared, outcome, revision)
        ledger.observe_transaction(outcome.row.provider, error, time.monotonic() - started_at)
        return error

    def _handle_answer(self, outcome: Outcome, sender: str) -> None:
        outcome.error = self._context.limits.handle_answer(outcome.row, outcome.error)
        self._context.breaker.record_answer(outcome.row, outcome.error)
