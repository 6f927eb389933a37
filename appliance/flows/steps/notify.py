"""The step that notifies the team that a contact came to it, by email or Slack, at most `MAX_PER_HOUR` times an hour.

A message to Slack is a request of the flow (`request_queue`) for which no run waits: `{"text": …}` to an incoming
webhook (docs.slack.dev/messaging/sending-messages-using-incoming-webhooks).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from appliance.accounts import members, users
from appliance.core import addresses, i18n
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows import request_queue, request_template
from appliance.flows.request_template import MAX_URL_CHARACTERS, RequestSpec
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
)
from appliance.flows.triggers import check_integer
from appliance.sending.delivery import safe_http
from appliance.sending.messages import system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.settings import config
from appliance.storage.database import scalar, write_state
from appliance.storage.models import Account, Channel, Contact, User
from appliance.webhooks.subscriptions import url_host

# The limit keeps a flow that thousands enter at once from filling a mailbox; the flow's page lists all contacts.
MAX_PER_HOUR = 20
MAX_NOTE_CHARACTERS = 500
VIAS = _EMAIL, _SLACK = ("email", "slack")
# Slack may be unreachable for a while, but after this time the message is of no use.
_SLACK_MS = 86_400_000
_COUNT_NOTICES = (
    "SELECT count(*) FROM step_visit WHERE flow_id = ? AND action_id = ? AND outcome = 'on' AND reason IS NULL "
    "AND test = 0 AND entered_at > ?"
)


class Notify(StepKind):
    """A step that emails a user of the account, or posts to Slack, with the name of the contact and a note.

    The URL of a webhook is stored encrypted, because everybody who knows it can post.
    """

    type = "notify"
    label = gettext_noop("Notify a colleague")
    icon = "bell-ring"
    keys = frozenset({"via", "user_id", "slack_url", "note"})
    fields = (
        StepField(
            "via", gettext_noop("Notify by"), "choice", required=True, default=_EMAIL,
            options=((_EMAIL, gettext_noop("Email")), (_SLACK, gettext_noop("Slack message"))),
        ),
        StepField("user_id", gettext_noop("Colleague"), "user", required=True, applies_to=(_EMAIL,)),
        StepField(
            "slack_url", gettext_noop("Webhook URL"), "secret", applies_to=(_SLACK,),
            help=gettext_noop(
                "From the incoming webhooks of Slack, or of a program that takes the same messages. "
                "It is stored encrypted; leave it empty to keep it."
            ),
        ),
        StepField(
            "note", gettext_noop("Note"), "note",
            help=gettext_noop(
                "The message names the contact and links to it. At most 20 an hour are sent; "
                "the contacts of this step are all listed here."
            ),
        ),
    )  # fmt: skip

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `via`, and what it needs: `user_id`, a user of the account, or `slack_url`; and `note`, a text."""
        via, note = raw.get("via"), _read_note(raw.get("note"), context)
        if via is not None and via not in VIAS:
            context.add_fault("via", gettext("is not included in the list"))
        other = "user_id" if via == _SLACK else "slack_url"
        if raw.get(other) is not None:
            context.add_fault(other, gettext("is only allowed with another value of via"))
        if via == _SLACK:
            return {"via": _SLACK, **_read_slack_url(raw.get("slack_url"), context), "note": note}
        user_id = raw.get("user_id")
        if error := check_integer(1, 2**63 - 1)(user_id):
            context.add_fault("user_id", gettext(error))
        elif _find_user(context.account_id, user_id) is None:
            context.add_fault("user_id", gettext("must exist"))
        return {"user_id": user_id, "note": note}

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the props, without an empty note and the URL of a webhook."""
        return {key: value for key, value in props.items() if value and key not in ("slack_url", "slack_host")}

    def get_disclosures(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return where a message to Slack is sent, because it names the contact and the first of its addresses."""
        return {"request": {"url": props["slack_url"]}} if props.get("via") == _SLACK else {}

    def list_missing(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return an error for a user who no longer has access."""
        if props.get("via") == _SLACK:
            return []
        user = _find_user(account_id, props["user_id"])
        return [] if user is not None else [("user_id", gettext("select a colleague who has access"))]

    def get_request(self, props: dict[str, Any], account_id: int) -> RequestSpec:
        """Return the request to Slack; its body is stored with it."""
        return RequestSpec("POST", request_template.unseal_secret(account_id, "", props["slack_url"]))

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Queue a message for each run in the transaction of its step, up to `MAX_PER_HOUR` in an hour.

        All further runs continue with the reason `too_many_notices`. Test runs and simulations send nothing.
        """
        is_slack = node.props.get("via") == _SLACK
        user = None if is_slack else _find_user(context.account_id, node.props["user_id"])
        if user is None and not is_slack:
            return [skip("no_colleague") for _ in runs]
        since = context.now - 3_600_000
        earlier = int(scalar(_COUNT_NOTICES, (context.flow_id, node.id, since))) + context.notices[node.id]
        left, results = MAX_PER_HOUR - earlier, []
        for run in runs:
            if run.test:
                results.append(skip("test_run"))
            elif left <= 0:
                results.append(skip("too_many_notices"))
            else:
                left -= 1
                if write_state.is_sandboxed:
                    pass  # A simulation sends nothing.
                elif user is None:
                    _queue_slack_message(node, run, context)
                else:
                    _queue_email(user, node.props["note"], run, context)
                results.append(CONTINUE)
        # Counted only here, because an earlier error reverts the emails of all these runs.
        context.notices[node.id] += results.count(CONTINUE)
        return results

    def simulate(self, node: Node, run: ActiveRun, result: StepResult, context: StepContext) -> dict[str, Any]:
        """Return the name of the user who would get the email, or the host that would get the Slack message.

        The address of the user is left out: keys that may simulate flows may not list the users, who sign in with it.
        """
        if node.props.get("via") == _SLACK:
            return {"to": node.props["slack_host"]}
        user = _find_user(context.account_id, node.props["user_id"])
        return {} if user is None else {"to": _name_user(user)}

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the name of the user, or the host of the webhook."""
        if props.get("via") == _SLACK:
            return gettext("Notify %(name)s", name=props["slack_host"])
        user = _find_user(account_id, props["user_id"])
        if user is None:
            return gettext("Notify a colleague who no longer has access")
        return gettext("Notify %(name)s", name=_name_user(user))


def _name_user(user: User) -> str:
    return user.name or user.email.partition("@")[0]


def _read_note(note: Any, context: ParseContext) -> str:
    if note is not None and not isinstance(note, str):
        context.add_fault("note", gettext("is invalid"))
        return ""
    if note is not None and len(note) > MAX_NOTE_CHARACTERS:
        context.add_fault("note", gettext("is too long (maximum is %(max)s characters)", max=MAX_NOTE_CHARACTERS))
    return (note or "").strip()


def _read_slack_url(url: Any, context: ParseContext) -> dict[str, str]:
    """Return the encrypted URL of a webhook and its host; without a URL in the request, the stored ones."""
    stored = context.previous or {}
    if url is None and stored.get("slack_url"):
        return {key: stored[key] for key in ("slack_url", "slack_host")}
    if url is None:
        context.add_fault("slack_url", gettext("can't be blank"))
    elif not isinstance(url, str) or "{" in url or safe_http.find_url_fault(url.strip()):
        context.add_fault("slack_url", gettext("is invalid"))
    elif len(url) > MAX_URL_CHARACTERS:
        error = gettext("is too long (maximum is %(max)s characters)", max=MAX_URL_CHARACTERS)
        context.add_fault("slack_url", error)
    else:
        sealed = request_template.seal_secret(context.account_id, "", url.strip())
        return {"slack_url": sealed, "slack_host": url_host(url.strip())}
    return {"slack_url": "", "slack_host": ""}


def _queue_slack_message(node: Node, run: ActiveRun, context: StepContext) -> None:
    """Queue the message to Slack about a run, in the language of the account."""
    account = Account.get_by_id(context.account_id)
    with i18n.use_language(users.choose_language(None, account)):
        contact, label = _escape(_name_contact(run)), _escape(gettext("Open contact"))
        link = f"<{config.base_url(config.current())}/contacts/{run.contact_id}|{label}>"
        lines = [
            f"*{_escape(context.flow_name)}*",
            gettext("%(contact)s came to a step of this flow.", contact=contact),
            _escape(node.props["note"]), link,
        ]  # fmt: skip
    body = msgspec.json.encode({"text": "\n".join(filter(None, lines))})
    request_queue.add_requests([run.id], node.id, context.now + _SLACK_MS, body, is_awaited=False)


def _escape(text: str) -> str:
    """Return a text in which the three special characters of Slack messages (`&`, `<`, `>`) are escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _find_user(account_id: int, user_id: Any) -> User | None:
    """Return a user of the account who has access, or None."""
    return members.find_active(account_id, user_id)


def _queue_email(user: User, note: str, run: ActiveRun, context: StepContext) -> None:
    """Queue the email about a run to a user, in the user's language."""
    account = Account.get_by_id(context.account_id)
    with i18n.use_language(users.choose_language(user, account)):
        email = _build_email(bool(note), f"{config.base_url(config.current())}/contacts/{run.contact_id}")
    data = {"contact": _name_contact(run), "flow": context.flow_name, "note": note}
    system_emails.queue_system_email(account, addresses.parse_email(user.email), None, email, data)


def _build_email(has_note: bool, link: str) -> SystemEmail:
    text = gettext("%(contact)s came to a step of this flow.", contact="{{ data.contact }}")
    return SystemEmail(
        subject=gettext("Flow: %(flow)s", flow="{{ data.flow }}"),
        heading="{{ data.flow }}",
        text=f"{text}</p><p>{{{{ data.note }}}}" if has_note else text,
        button=gettext("Open contact"),
        link=link,
        note=gettext("You get this email because a step of the flow names you. At most 20 an hour are sent."),
        language=i18n.get_language_tag(),
    )


def _name_contact(run: ActiveRun) -> str:
    """Return the name and the first address of a run's contact, or its id if it has neither."""
    contact = Contact.get_by_id(run.contact_id)
    channel = Channel.select().where(Channel.contact == run.contact_id).order_by(Channel.id).first()
    name = " ".join(filter(None, (contact.first_name, contact.last_name)))
    address = "" if channel is None else channel.value
    if name and address:
        return f"{name} ({address})"
    return name or address or gettext("Contact %(id)s", id=run.contact_id)
