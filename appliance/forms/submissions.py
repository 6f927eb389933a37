"""Accept submissions of sign-up forms: parse them, limit their rate, and sign up the contact or request confirmation.

The response does not reveal whether an address belongs to a contact. A submission that needs confirmation is stored
outside of the contacts until it is confirmed, and the confirmation email contains none of the submitted data.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType, to_builtins

from appliance.accounts.public_urls import base_url_of
from appliance.audience import consent, lists
from appliance.audience.consent import Evidence
from appliance.audience.contacts import store as contacts
from appliance.audience.contacts import write
from appliance.audience.contacts.store import ContactPatch, ContactWrite
from appliance.core import addresses, clock, crypto, recipient_texts, validation
from appliance.core.addresses import Address
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext
from appliance.core.validation import LanguageTag, Line
from appliance.events import log, user_agents
from appliance.events.log import NewEvent
from appliance.forms import store
from appliance.forms.fields import Field, list_fields, read_value
from appliance.sending.messages import links, system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.storage.database import fetch_one, rows, run
from appliance.storage.models import Account, Channel, Confirmation, Form, Message
from appliance.storage.models.account import CHANNELS
from appliance.storage.transactions import commit, fetch, require_write_transaction

# A hidden input: people do not see it, but bots fill in every input.
HONEYPOT_FIELD = "website"


class Names(Struct):
    """The names and language in a submission, which are accepted even if the form has no fields for them."""

    first_name: Line | None | UnsetType = UNSET
    last_name: Line | None | UnsetType = UNSET
    language: LanguageTag | None | UnsetType = UNSET


class Submission(NamedTuple):
    """A parsed submission.

    `address` is the address to sign up. `names` are the fields of `Names` that are filled in. `data` is the custom data
    by key. `browser_language` is stored if neither the submission nor the contact has a language. `topic_ids` are the
    lists that the visitor chose.
    """

    address: Address
    phone: Address | None  # The phone number, if `address` is an email address.
    names: dict[str, str]
    data: dict[str, Any]
    browser_language: str | None = None
    topic_ids: tuple[int, ...] = ()

    @property
    def language(self) -> str | None:
        """Return the language that was filled in, else the browser's, or None if both are unknown."""
        return self.names.get("language") or self.browser_language


def is_honeypot_filled(raw: Mapping[str, Any]) -> bool:
    """Return whether the hidden field of a submission is filled in, as only bots do."""
    return raw.get(HONEYPOT_FIELD) not in (None, "", UNSET)


def parse_submission(form: Form, raw: Mapping[str, Any]) -> Submission:
    """Parse the raw values of a submission (by field name); raises Invalid with all errors by field name.

    A phone number may be in the national format of the account's country. An email address takes precedence over a
    phone number as the address to sign up.
    """
    faults = Faults()
    form_fields = list_fields(form)
    data = _parse_data(raw, [field for field in form_fields if field.key is not None], faults)
    names: dict[str, str] = {}
    try:
        parsed_names = validation.read(Names, {name: raw[name] for name in Names.__struct_fields__ if name in raw})
        names = {
            name: value.strip()
            for name, value in validation.sent_fields(parsed_names).items()
            if value and value.strip()
        }
    except Invalid as error:
        faults.merge(error.fields)
    addresses_by_kind = {kind: _parse_address(form, kind, raw.get(kind), faults) for kind in ("email", "phone")}
    values: dict[str, Any] = {**addresses_by_kind, **names, **{f"data.{key}": value for key, value in data.items()}}
    for field in form_fields:
        if field.required and values.get(field.name) in (None, "") and field.name not in faults.fields:
            faults.add(field.name, gettext("can't be blank"))
    if not any(addresses_by_kind.values()) and not set(addresses_by_kind) & set(faults.fields):
        faults.add(
            "phone" if not any(field.name == "email" for field in form_fields) else "email", gettext("can't be blank")
        )
    topic_ids = _parse_topics(form, raw, faults)
    faults.check()
    address = addresses_by_kind["email"] or addresses_by_kind["phone"]
    assert address is not None
    phone = addresses_by_kind["phone"] if addresses_by_kind["email"] else None
    return Submission(address, phone, names, data, topic_ids=tuple(topic_ids))


def _parse_address(form: Form, kind: str, text: Any, faults: Faults) -> Address | None:
    if text is None or text == "":
        return None
    if not isinstance(text, str) or len(text) > 300:
        faults.add(kind, gettext("is invalid"))
        return None
    try:
        if kind == "phone":
            return addresses.parse_written_phone(text, Account.get_by_id(form.account_id).country_code)
        return addresses.parse_email(text)
    except ValueError:
        faults.add(kind, gettext("is invalid"))
        return None


def _parse_data(raw: Mapping[str, Any], form_fields: list[Field], faults: Faults) -> dict[str, Any]:
    """Return the custom data of a submission by key; errors are added to `faults`.

    A value may be sent in the object `data`, or as the field `data.key`, `data[key]` or `key`.
    """
    data = raw.get("data")
    data = data if isinstance(data, dict) else {}
    values: dict[str, Any] = {}
    for field in form_fields:
        assert field.key is not None
        candidates = (data.get(field.key), raw.get(field.name), raw.get(f"data[{field.key}]"), raw.get(field.key))
        value = next((candidate for candidate in candidates if candidate not in (None, "")), None)
        stored = read_value(field, value, faults)
        if stored is not None:
            values[field.key] = stored
    if len(msgspec.json.encode(values)) > validation.MAX_DATA_BYTES:
        faults.add(
            f"data.{find_longest(values)}",
            gettext("is too long (maximum is %(limit)s bytes)", limit=validation.MAX_DATA_BYTES),
        )
    return values


def find_longest(data: Mapping[str, Any]) -> str:
    """Return the key of the longest value of custom data; raises ValueError if `data` is empty."""
    return max(data, key=lambda key: len(str(data[key])))


def _parse_topics(form: Form, raw: Mapping[str, Any], faults: Faults) -> list[int]:
    """Return the ids of the chosen lists that the form offers; other lists are left out.

    A list may have been removed from the form while it was being filled in, so its id is not an error.
    """
    if not form.topics:
        return []
    chosen = raw.get("topics")
    chosen_ids = {str(item) for item in (chosen if isinstance(chosen, list) else [chosen])}
    topic_ids = [list_id for list_id, _ in form.topics if str(list_id) in chosen_ids]
    if form.topics_required and not topic_ids:
        faults.add("topics", gettext("can't be blank"))
    return topic_ids


def select_values(form: Form, posted: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the values of a posted HTML form: all values of fields with several, and the first of each other field."""
    several = {"topics", *(field.name for field in list_fields(form) if field.type == "checkboxes")}
    return {name: values if name in several else values[0] for name, values in posted.items() if values}


SOURCE = "form"


def find_channel(account_id: int, kind: str, key: str) -> Channel | None:
    """Return the channel of an account with a normalized address (`kind` and `key`), or None."""
    return next(iter(CHANNELS.find("account_id = ? AND kind = ? AND key = ?", (account_id, kind, key))), None)


def save_contact(account_id: int, submission: Submission, evidence: Evidence, is_theirs: bool) -> Channel:
    """Create or update the contact with the address of a submission, and return the channel; consent is unchanged.

    With `is_theirs`, the owner of the address has confirmed the values, and they replace existing values; otherwise
    they only fill empty fields. A phone number beside an email address is left out if the contact already has a number,
    or if another contact has this one. Raises Invalid if the contact would become invalid, for example with too much
    custom data.
    """
    require_write_transaction()
    existing_channel = find_channel(account_id, submission.address.kind, submission.address.key)
    if existing_channel is None:
        body: dict[str, Any] = {
            submission.address.kind: submission.address.value,
            "source": SOURCE,
            "opt_in": False,
            "language": submission.browser_language,
            **submission.names,
        }
        body["data"] = submission.data
        if submission.phone is not None and write.find_owner(account_id, submission.phone) is None:
            body["phone"] = submission.phone.value
        write.upsert(account_id, validation.read(ContactWrite, body), evidence)
    else:
        _update_contact(account_id, existing_channel, submission, evidence, is_theirs)
    channel = find_channel(account_id, submission.address.kind, submission.address.key)
    assert channel is not None
    return channel


def _update_contact(
    account_id: int, existing_channel: Channel, submission: Submission, evidence: Evidence, is_theirs: bool
) -> None:
    contact = contacts.get(account_id, existing_channel.contact_id)
    body: dict[str, Any] = {
        name: value for name, value in submission.names.items() if is_theirs or not getattr(contact, name)
    }
    if not contact.language and submission.browser_language:
        body.setdefault("language", submission.browser_language)
    data = {
        key: value for key, value in submission.data.items() if is_theirs or (contact.data or {}).get(key) in (None, "")
    }
    if data:
        body["data_merge"] = data
    has_phone = any(channel.kind == "phone" for channel in contact.channels)
    has_room = len(contact.channels) < addresses.MAX_ADDRESSES
    if (
        submission.phone is not None
        and not has_phone
        and has_room
        and write.find_owner(account_id, submission.phone) is None
    ):
        body["channels_attributes"] = [{"value": submission.phone.value, "kind": "phone", "subscribed": False}]
    if body:
        write.update(account_id, contact.id, validation.read(ContactPatch, body), evidence)


# The lifetime of a confirmation link and of the submitted data, and the lifetime of the row of the confirmation.
LINK_LIFETIME_MS, RETENTION_MS = 7 * clock.DAY_MS, 30 * clock.DAY_MS
MAX_MAILS_PER_CLIENT = 3
# Longer names of lists are only in the text of the confirmation email, not in its subject.
_MAX_SUBJECT_LISTS = 80
# Many addresses may lead to one mailbox (`addresses.find_mailbox`), and many clients may submit them.
MAX_MAILS_PER_MAILBOX = 5
# Addresses with a suppression for one of these reasons get no confirmation email, and a confirmation does not lift it.
_UNREACHABLE_REASONS = ("hard_bounce", "soft_bounce", "manual", "stop_keyword")


class _SignUp(NamedTuple):
    """A submission with its account, form and evidence, and the existing channel, if any.

    `lists` has the name of each list by id, or None for a list that is not public.
    """

    account: Account
    form: Form
    submission: Submission
    lists: dict[int, str | None]
    channel: Channel | None
    evidence: Evidence


def accept_submission(form: Form, submission: Submission, ip: str, user_agent: str | None) -> None:
    """Count a submission, record its event, and sign up the contact or request confirmation.

    A submission that needs no confirmation only fills empty fields of the contact. Do nothing if the form was deleted.
    Raises Invalid as `save_contact` does.
    """
    require_write_transaction()
    if not Form.select().where(Form.id == form.id).exists():
        return  # The form was deleted after the submission was parsed.
    account = Account.get_by_id(form.account_id)
    evidence = Evidence(SOURCE, f"form:{form.id}", ip, user_agent, form.consent_text)
    channel = find_channel(account.id, submission.address.kind, submission.address.key)
    sign_up = _SignUp(account, form, submission, _load_lists(form, submission), channel, evidence)
    run("UPDATE form SET submissions_count = submissions_count + 1 WHERE id = ?", (form.id,))
    needs_confirmation = _needs_confirmation(sign_up)
    if not needs_confirmation:
        channel = _sign_up(sign_up)
    elif submission.address.kind == "phone":
        # There is no confirmation by SMS, so the contact is stored but not subscribed.
        channel = save_contact(account.id, submission, evidence, is_theirs=False)
    data = {"form_id": form.id, "form_name": form.name, "list_ids": list(sign_up.lists)}
    happened = NewEvent(account.id, "form_submitted", None, data, f"form:{form.id}", form.name)
    if channel is None:
        # The event belongs to no contact, so it has no IP address or user agent: no erasure would remove them.
        log.record(happened)
    else:
        happened.contact_id = channel.contact_id
        log.record_with_client(happened, ip, user_agents.truncate_header(user_agent))
    if needs_confirmation and submission.address.kind == "email":
        _request_confirmation(sign_up)


def _load_lists(form: Form, submission: Submission) -> dict[int, str | None]:
    """Return the names of the form's and the chosen lists by id; the name is None for a list that is not public."""
    list_ids = {*form.list_ids, *submission.topic_ids}
    list_rows = rows(
        "SELECT id, CASE WHEN public THEN name END FROM contact_list WHERE account_id = ? ORDER BY id",
        (form.account_id,),
    )
    return {row[0]: row[1] for row in list_rows if row[0] in list_ids}


def _needs_confirmation(sign_up: _SignUp) -> bool:
    """Return whether the owner of the address must confirm the sign-up.

    Each of these reasons is enough: the form requires it; a list requires it and the address is unverified; the address
    has opted out or left one of the lists; its suppression has one of `consent.BLOCKING_REASONS`.
    """
    channel = sign_up.channel
    if sign_up.form.double_opt_in:
        return True
    if (channel is None or channel.verified_at is None) and _requires_double_opt_in(list(sign_up.lists)):
        return True
    if channel is not None:
        is_opted_out = not channel.subscribed and channel.opt_out_at is not None
        return (
            is_opted_out
            or channel.suppression in consent.BLOCKING_REASONS
            or consent.has_left_list(channel.contact_id, list(sign_up.lists))
        )
    kind, address_hash = (
        sign_up.submission.address.kind,
        crypto.hash_address(sign_up.submission.address.kind, sign_up.submission.address.key),
    )
    remembered = consent.find_remembered_opt_out(sign_up.account.id, kind, address_hash)
    return (
        remembered is not None
        or consent.find_suppression_reason(sign_up.account.id, kind, address_hash) in consent.BLOCKING_REASONS
    )


def _requires_double_opt_in(list_ids: list[int]) -> bool:
    marks = ",".join("?" * len(list_ids))
    return fetch_one(f"SELECT 1 FROM contact_list WHERE double_opt_in = 1 AND id IN ({marks})", list_ids) is not None


def _sign_up(sign_up: _SignUp) -> Channel:
    """Create or update the contact, opt the address in, add the contact to the lists, and return the channel."""
    channel = save_contact(sign_up.account.id, sign_up.submission, sign_up.evidence, is_theirs=False)
    if not channel.subscribed:
        consent.opt_in(channel, "recipient", sign_up.evidence)
    for list_id in sign_up.lists:
        lists.add_members(sign_up.account.id, list_id, [channel.contact_id])
    consent.touch_last_interaction(channel.contact_id)
    return channel


def _request_confirmation(sign_up: _SignUp) -> None:
    """Store the submission with its evidence, and email the owner of the address a confirmation link.

    No email is sent in these cases:

    - The address got such an email in the last day, or is suppressed for one of `_UNREACHABLE_REASONS`.
    - The client has caused `MAX_MAILS_PER_CLIENT` emails in the last hour.
    - `MAX_MAILS_PER_MAILBOX` emails were sent to the mailbox of the address in the last day.
    """
    account, form, submission = sign_up.account, sign_up.form, sign_up.submission
    now, contact_id = clock.now_ms(), sign_up.channel.contact_id if sign_up.channel else None
    person = {
        "names": submission.names,
        "data": submission.data,
        "phone": submission.phone.value if submission.phone else None,
        "browser_language": submission.browser_language,
    }
    confirmation = _find_unmailed(sign_up, now) or Confirmation(
        account=account, form=form.id, purpose="opt_in", kind=submission.address.kind, key=submission.address.key
    )
    confirmation.value, confirmation.person, confirmation.list_ids = (
        submission.address.value,
        to_builtins(person),
        list(sign_up.lists),
    )
    confirmation.ip, confirmation.text = (
        addresses.anonymize_ip(sign_up.evidence.ip, account.privacy_ip),
        form.consent_text,
    )
    confirmation.user_agent, confirmation.created_at = (sign_up.evidence.user_agent or "")[:400] or None, now
    confirmation.save()
    consent.record_evidence(
        account.id, (submission.address.kind, submission.address.key), "requested", "recipient", sign_up.evidence,
        contact_id, {"form_id": form.id, "list_ids": list(sign_up.lists)},
    )  # fmt: skip
    data = {"form_id": form.id, "form_name": form.name}
    log.record(NewEvent(account.id, "double_opt_in_requested", contact_id, data, f"form:{form.id}", form.name))
    if _can_be_mailed(sign_up, now):
        message = _send_confirmation_mail(sign_up, confirmation.id)
        confirmation.message_id = message.id
        # An email that was not queued does not count, so the next submission may send one.
        confirmation.mailed_at = now if message.status == "queued" else None
        confirmation.save()


def _find_unmailed(sign_up: _SignUp, now: int) -> Confirmation | None:
    """Return an open confirmation of this form and address that was not mailed, or None.

    The new submission overwrites this row, so that repeated submissions do not leave many rows that `confirm` must
    process.
    """
    confirmation: Confirmation | None = Confirmation.get_or_none(
        Confirmation.account == sign_up.account.id, Confirmation.form == sign_up.form.id,
        Confirmation.purpose == "opt_in", Confirmation.kind == sign_up.submission.address.kind,
        Confirmation.key == sign_up.submission.address.key, Confirmation.mailed_at.is_null(),
        Confirmation.confirmed_at.is_null(), Confirmation.created_at > now - LINK_LIFETIME_MS,
    )  # fmt: skip
    return confirmation


def _can_be_mailed(sign_up: _SignUp, now: int) -> bool:
    kind, key = sign_up.submission.address.kind, sign_up.submission.address.key
    recent = fetch_one(
        "SELECT 1 FROM confirmation WHERE account_id = ? AND kind = ? AND key = ? AND purpose = 'opt_in' "
        "AND mailed_at > ?",
        (sign_up.account.id, kind, key, now - clock.DAY_MS),
    )
    if recent is not None:
        return False
    address_hash = crypto.hash_address(kind, key)
    reason = consent.find_suppression_reason(sign_up.account.id, kind, address_hash, ignored=consent.BLOCKING_REASONS)
    if reason in _UNREACHABLE_REASONS:
        return False
    household = addresses.client_network(sign_up.evidence.ip or "")
    if store.count_attempt(f"mail:{household}", MAX_MAILS_PER_CLIENT, store.HOUR_MS):
        return False
    mailbox = f"mailbox:{sign_up.account.id}:{addresses.find_mailbox(key)}"
    return not store.count_attempt(mailbox, MAX_MAILS_PER_MAILBOX, clock.DAY_MS)


def _send_confirmation_mail(sign_up: _SignUp, confirmation_id: int) -> Message:
    known_language = contacts.fetch_language(sign_up.channel.contact_id) if sign_up.channel else None
    language = recipient_texts.choose_language(
        sign_up.submission.names.get("language") or known_language or sign_up.submission.browser_language,
        sign_up.account.locale,
    )
    texts = recipient_texts.get_texts(language)
    # Names of lists that are not public are for the team; the name of the form is shown in their place.
    names = [name for name in sign_up.lists.values() if name]
    if sign_up.lists and not names:
        names = [sign_up.form.title or sign_up.form.name]
    text = texts["mail_confirm_text"] + (f" {texts['mail_confirm_lists']}" if names else "")
    lists_text = ", ".join(names)
    has_short_lists = 0 < len(lists_text) <= _MAX_SUBJECT_LISTS
    subject = texts["mail_confirm_subject_lists" if has_short_lists else "mail_confirm_subject"]
    letter = SystemEmail(
        subject, texts["mail_confirm_heading"], text, texts["mail_confirm_button"],
        links.build_confirmation_url(base_url_of(sign_up.account), confirmation_id), texts["mail_confirm_note"],
        language.replace("_", "-"),
    )  # fmt: skip
    contact_id = sign_up.channel.contact_id if sign_up.channel else None
    data = {"lists": lists_text}
    return system_emails.queue_system_email(sign_up.account, sign_up.submission.address, contact_id, letter, data)


def list_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` unconfirmed rows with data whose link has expired (`LINK_LIFETIME_MS`)."""
    return _list_ids("created_at < ? AND confirmed_at IS NULL AND key IS NOT NULL", LINK_LIFETIME_MS, limit)


def clear_personal_data(confirmation_ids: list[int]) -> int:
    """Clear the submitted data of those of these rows that are unconfirmed, and return their number.

    The rows are deleted after `RETENTION_MS`.
    """
    require_write_transaction()
    return run(
        "UPDATE confirmation SET value = NULL, key = NULL, person = '{}', ip = NULL, user_agent = NULL "
        f"WHERE id IN ({','.join(map(str, confirmation_ids))}) AND confirmed_at IS NULL"
    )


def list_deletable(limit: int) -> list[int]:
    """Return the ids of up to `limit` confirmations, confirmed or not, that are older than `RETENTION_MS`."""
    return _list_ids("created_at < ?", RETENTION_MS, limit)


def delete_confirmations(confirmation_ids: list[int]) -> int:
    """Delete confirmations and return their number."""
    require_write_transaction()
    return run(f"DELETE FROM confirmation WHERE id IN ({','.join(map(str, confirmation_ids))})")


def _list_ids(condition: str, age_ms: int, limit: int) -> list[int]:
    id_rows = rows(f"SELECT id FROM confirmation WHERE {condition} LIMIT ?", (clock.now_ms() - age_ms, limit))
    return [row[0] for row in id_rows]


MAX_PER_RECIPIENT, MAX_PER_CLIENT = 10, 50


async def submit(form: Form, submission: Submission, client_ip_address: str, user_agent: str | None) -> None:
    """Accept a submission; raises RateLimitExceeded if its client or its recipient has reached a limit.

    The limits are `MAX_PER_CLIENT` and `MAX_PER_RECIPIENT` a minute (docs/decisions.md#4, Rates per address).
    """
    store.check_rate(f"form client:{addresses.client_network(client_ip_address)}", MAX_PER_CLIENT)
    store.check_rate(f"form recipient:{submission.address.kind}:{submission.address.key}", MAX_PER_RECIPIENT)
    # The user agent is parsed here and cached, so that the writer does not wait for it.
    await fetch(user_agents.parse_device, user_agents.truncate_header(user_agent))
    await commit(accept_submission, form, submission, client_ip_address, user_agent)
