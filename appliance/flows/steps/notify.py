"""The step that emails a member of the team that a contact came to it, at most `MAX_PER_HOUR` times an hour."""

from collections.abc import Sequence
from typing import Any

from appliance.accounts import users
from appliance.core import addresses, i18n
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
)
from appliance.flows.triggers import check_integer
from appliance.sending.messages import system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.settings import config
from appliance.storage.database import scalar, write_state
from appliance.storage.models import Account, Channel, Contact, User

# A flow that thousands enter at once must not fill a mailbox; the flow's page lists all contacts.
MAX_PER_HOUR = 20
MAX_NOTE_CHARACTERS = 500
_COUNT_NOTICES = (
    "SELECT count(*) FROM step_visit WHERE flow_id = ? AND action_id = ? AND outcome = 'on' AND reason IS NULL "
    "AND test = 0 AND entered_at > ?"
)


class Notify(StepKind):
    """A step that emails the user `user_id` of the account, with the name of the contact and a note."""

    type = "notify"
    label = gettext_noop("Notify a colleague")
    icon = "bell-ring"
    keys = frozenset({"user_id", "note"})
    fields = (
        StepField("user_id", gettext_noop("Colleague"), "user", required=True),
        StepField(
            "note", gettext_noop("Note"), "note",
            help=gettext_noop(
                "The email names the contact and links to it. At most 20 emails an hour are sent; "
                "the contacts of this step are all listed here."
            ),
        ),
    )  # fmt: skip

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse `user_id`, a user of the account, and `note`, a text of up to `MAX_NOTE_CHARACTERS` characters."""
        user_id, note = raw.get("user_id"), raw.get("note")
        if error := check_integer(1, 2**63 - 1)(user_id):
            context.add_fault("user_id", gettext(error))
        elif _find_user(context.account_id, user_id) is None:
            context.add_fault("user_id", gettext("must exist"))
        if note is not None and not isinstance(note, str):
            context.add_fault("note", gettext("is invalid"))
            note = None
        elif note is not None and len(note) > MAX_NOTE_CHARACTERS:
            context.add_fault("note", gettext("is too long (maximum is %(max)s characters)", max=MAX_NOTE_CHARACTERS))
        return {"user_id": user_id, "note": (note or "").strip()}

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the props, without an empty note."""
        return {key: value for key, value in props.items() if value}

    def list_missing(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return an error for a user that has no access any more."""
        user = _find_user(account_id, props["user_id"])
        return [] if user is not None else [("user_id", gettext("select a colleague who has access"))]

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Queue an email for each run in the transaction of its step, until there were `MAX_PER_HOUR` in an hour.

        All others continue with the reason `too_many_notices`. Test runs and simulations send nothing.
        """
        user = _find_user(context.account_id, node.props["user_id"])
        if user is None:
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
                if not write_state.is_sandboxed:
                    _queue_email(user, node.props["note"], run, context)
                results.append(CONTINUE)
        # Only now, because an error before undoes the emails of all these runs.
        context.notices[node.id] += results.count(CONTINUE)
        return results

    def simulate(self, node: Node, run: ActiveRun, result: StepResult, context: StepContext) -> dict[str, Any]:
        """Return the address that the email would go to."""
        user = _find_user(context.account_id, node.props["user_id"])
        return {} if user is None else {"to": user.email}

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the name of the user."""
        user = _find_user(account_id, props["user_id"])
        if user is None:
            return gettext("Notify a colleague who has no access any more")
        return gettext("Notify %(name)s", name=user.name or user.email)


def _find_user(account_id: int, user_id: Any) -> User | None:
    """Return a user of the account who has access, or None."""
    user: User | None = User.get_or_none(User.account == account_id, User.id == user_id, User.disabled_at.is_null())
    return user


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
    """Return the name and the first address of the contact of a run, or its number."""
    contact = Contact.get_by_id(run.contact_id)
    channel = Channel.select().where(Channel.contact == run.contact_id).order_by(Channel.id).first()
    name = " ".join(filter(None, (contact.first_name, contact.last_name)))
    address = "" if channel is None else channel.value
    if name and address:
        return f"{name} ({address})"
    return name or address or gettext("Contact %(id)s", id=run.contact_id)
