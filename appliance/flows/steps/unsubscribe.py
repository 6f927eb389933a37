"""The step that unsubscribes the contact from marketing on one channel, such as at the end of a sunset flow."""

import json
from collections.abc import Sequence
from typing import Any

from appliance.audience import consent
from appliance.audience.consent import Evidence
from appliance.core import clock
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.steps.base import (
    CONTINUE,
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
    skip,
    wait_until,
)
from appliance.storage.database import rows
from appliance.storage.database import run as run_statement
from appliance.storage.models import Channel
from appliance.storage.models.message import OPEN

CHANNELS = ("email", "sms")
# The kind of a contact's channels for each value of the step's `channel`.
_KINDS = {"email": "email", "sms": "phone"}
# An earlier step may just have queued a message, such as a goodbye, which would be skipped if the contact were
# unsubscribed first. So the step waits until it is sent: a second at first, and then each time as long as it has waited
# so far.
_MIN_WAIT_MS, _MAX_WAIT_MS = 1_000, 900_000
# After this time the step no longer waits for a message.
_MAX_MESSAGE_AGE_MS = 86_400_000
_OPEN_MESSAGES = (
    "SELECT run_id, max(created_at) FROM message WHERE run_id IN (SELECT value FROM json_each(?1)) AND channel = ?2 "
    f"AND status IN {OPEN} AND NOT transactional AND created_at > ?3 GROUP BY run_id"
)


class Unsubscribe(StepKind):
    """A step that opts the contact out of one channel; it never opts in, and lifts no suppression."""

    type = "unsubscribe"
    label = gettext_noop("Unsubscribe")
    icon = "ban"
    batch_size = 10
    keys = frozenset({"channel"})
    fields = (
        StepField(
            "channel", gettext_noop("Channel"), "channel", required=True,
            help=gettext_noop(
                "The contact gets no more marketing messages on this channel until subscribed again. "
                "Transactional messages are still sent."
            ),
        ),
    )  # fmt: skip

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `channel`, which is `email` if it is absent."""
        channel = raw.get("channel") or "email"
        if channel not in CHANNELS:
            context.add_fault("channel", gettext("is not included in the list"))
        return {"channel": channel}

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Opt out the subscribed addresses of each contact on the channel, with the flow as the evidence.

        An earlier opt-out is recorded again if it came with an import (docs/decisions.md#9). The step counts as
        skipped, with a reason, for a deleted contact and for a contact without a subscribed address.

        A run waits at the step while a marketing message that the run created on the channel is not sent yet, at most a
        day after the message was created.
        """
        channel = node.props["channel"]
        created = _get_open_messages(runs, channel, context.now)
        return [
            wait_until(context.get_time(run) + min(max(context.now - created[run.id], _MIN_WAIT_MS), _MAX_WAIT_MS))
            if run.id in created
            else _unsubscribe(run, _KINDS[channel], context)
            for run in runs
        ]

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return `Unsubscribe from email` or `Unsubscribe from SMS`, translated."""
        return gettext("Unsubscribe from SMS") if props["channel"] == "sms" else gettext("Unsubscribe from email")


def _get_open_messages(runs: Sequence[ActiveRun], channel: str, now: int) -> dict[int, int]:
    """Return, by run id, when the last unsent message of a run on the channel was created, in Unix milliseconds."""
    run_ids = json.dumps([run.id for run in runs])
    return dict(rows(_OPEN_MESSAGES, (run_ids, channel, now - _MAX_MESSAGE_AGE_MS)))


def _unsubscribe(active_run: ActiveRun, kind: str, context: StepContext) -> StepResult:
    if active_run.contact_id is None:
        return skip("contact_deleted")
    channels = list(Channel.select().where(Channel.contact == active_run.contact_id, Channel.kind == kind))
    evidence = Evidence("flow", f"flow:{context.flow_id}", test=active_run.test)
    has_subscribed = any(channel.subscribed for channel in channels)
    has_opted_out = any(channel.opt_out_at is not None for channel in channels)
    for channel in channels:
        # An opt-out that came with an import is confirmed, so that undoing the import keeps it.
        if channel.subscribed or channel.opt_out_at is not None:
            consent.opt_out(channel, "operator", evidence)
    if has_subscribed:
        run_statement("UPDATE contact SET updated_at = ? WHERE id = ?", (clock.now_ms(), active_run.contact_id))
        return CONTINUE
    return skip("unsubscribed" if has_opted_out else "no_consent" if channels else "no_channel")
