"""The links of confirmation mails: a page that changes nothing, and one POST that confirms."""

from typing import Any, Literal, NamedTuple

from appliance.audience.contacts import consent
from appliance.audience.contacts.consent import Evidence
from appliance.core import addresses, clock, tokens
from appliance.events import log
from appliance.events.log import Happened
from appliance.forms import people
from appliance.forms.accept import LIVES_MS
from appliance.forms.reading import Submitted
from appliance.sending.messages import links
from appliance.storage.models import Channel, Confirmation, Form
from appliance.storage.open import rows, run
from appliance.storage.work import writing
from appliance.tracking import account_look, erasing
from appliance.tracking.account_look import Face

State = Literal["open", "done", "expired"]


class Sheet(NamedTuple):
    """What the page of a confirmation shows."""

    purpose: Literal["opt_in", "erase"]
    state: State
    face: Face
    masked: str | None
    lists: list[str]
    message_id: int | None


def find(token: str) -> Confirmation | None:
    """Return what a token confirms, or None if it is not ours, or long gone."""
    number = tokens.read(links.CONFIRM, token)
    return Confirmation.get_or_none(Confirmation.id == number) if number is not None else None


def sheet(token: str) -> Sheet | None:
    """Return what the page of a token shows, or None; reading changes nothing."""
    asked = find(token)
    if asked is None:
        return None
    wanted = {number for each in _together(asked) for number in each.list_ids} | set(asked.list_ids)
    names = rows("SELECT id, name FROM contact_list WHERE account_id = ? ORDER BY name_key", (asked.account_id,))
    purpose: Any = asked.purpose
    return Sheet(
        purpose, _state(asked), account_look.of(asked.account_id),
        account_look.mask(asked.value) if asked.value else None,
        [row[1] for row in names if row[0] in wanted], asked.message_id,
    )  # fmt: skip


def _state(asked: Confirmation) -> State:
    if asked.confirmed_at is not None:
        return "done"
    old = asked.created_at <= clock.now_ms() - LIVES_MS
    return "expired" if old or asked.key is None else "open"


def _together(asked: Confirmation) -> list[Confirmation]:
    """Return all that waits for the same answer: one mail a day asks, however many forms were filled in."""
    if asked.purpose != "opt_in" or asked.key is None:
        return [asked]
    return list(
        Confirmation.select()
        .where(
            Confirmation.account == asked.account_id, Confirmation.purpose == "opt_in",
            Confirmation.kind == asked.kind, Confirmation.key == asked.key, Confirmation.confirmed_at.is_null(),
            Confirmation.created_at > clock.now_ms() - LIVES_MS,
        )
        .order_by(Confirmation.id)
    )  # fmt: skip


def confirm(token: str, ip: str | None, user_agent: str | None, text: str | None) -> State | None:
    """Confirm what a token stands for, once; a repeat changes nothing. None: not ours; `expired`: too late."""
    writing()
    asked = find(token)
    if asked is None:
        return None
    state = _state(asked)
    if state != "open":
        return state
    evidence = Evidence("double_opt_in", "recipient", ip, user_agent, text, asked.message_id)
    if asked.purpose == "erase":
        erasing.confirmed(asked, evidence)
    else:
        _opt_in(_together(asked), evidence)
    return "done"


def _opt_in(waiting: list[Confirmation], evidence: Evidence) -> None:
    for asked in waiting:
        channel = people.put(asked.account_id, _said(asked), evidence, is_theirs=True)
    # Once for all of them, with the state as it is after the last
    consent.confirmed(channel, evidence)
    consent.note_own_act(channel.contact_id)
    now = clock.now_ms()
    for asked in waiting:
        joined = [one for one in asked.list_ids if consent.join_list(channel, one, evidence)]
        _tell(asked, channel, joined)
        run(
            "UPDATE confirmation SET confirmed_at = ?, person = '{}', ip = NULL, user_agent = NULL WHERE id = ?",
            (now, asked.id),
        )
        run("UPDATE form SET confirmed_count = confirmed_count + 1 WHERE id = ?", (asked.form_id,))


def _said(asked: Confirmation) -> Submitted:
    person: dict[str, Any] = asked.person
    phone = person.get("phone")
    assert asked.value is not None and asked.key is not None, "what was erased is never confirmed"
    return Submitted(
        addresses.Address(asked.kind, asked.value, asked.key), addresses.phone(phone) if phone else None,
        person.get("names", {}), person.get("data", {}),
    )  # fmt: skip


def _tell(asked: Confirmation, channel: Channel, list_ids: list[int]) -> None:
    form = Form.get_or_none(Form.id == asked.form_id) if asked.form_id is not None else None
    data = {
        "form_id": asked.form_id, "form_name": form.name if form else None, "list_ids": list_ids,
        "message_id": asked.message_id,
    }  # fmt: skip
    log.record(Happened(
        asked.account_id, "double_opt_in_confirmed", channel.contact_id, data,
        f"form:{asked.form_id}" if form else None, form.name if form else None,
    ))  # fmt: skip
