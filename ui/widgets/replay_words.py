"""The result of a replay in words: a headline, the table of both versions, the steps, people and warnings."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from appliance.audience.contacts import store as contacts
from appliance.core import clock, i18n
from appliance.core.i18n import gettext, ngettext
from appliance.flows import replays, triggers
from appliance.flows.replay_result import (
    ReplayMessage,
    ReplayOrders,
    ReplayResult,
    ReplayStep,
    ReplayTotals,
    ReplayWarning,
)
from appliance.flows.simulation_timeline import describe_skip
from appliance.flows.steps import BY_TYPE
from ui import formats
from ui.forms import flow_forms
from ui.widgets import flow_tree


class Row(NamedTuple):
    """A row of the table: its label, the values of both versions, and whether they differ."""

    label: str
    draft: str
    live: str | None

    @property
    def is_different(self) -> bool:
        """Return whether the versions differ."""
        return self.live is not None and self.draft != self.live


class PersonWords(NamedTuple):
    """A contact of the sample, and its messages in both versions of the flow.

    A message is a time in Unix milliseconds, the title of its step, and why it is not sent, or "".
    """

    contact_id: int
    name: str
    draft: list[tuple[int, str, str]]
    live: list[tuple[int, str, str]]


class BranchRow(NamedTuple):
    """A branch of a step: its label, and how often contacts took it in both versions; None where it does not exist."""

    label: str
    draft: int | None
    live: int | None


def list_branches(step: ReplayStep) -> list[BranchRow]:
    """Return the branches of a step of a result, in their order; empty for a step without branches."""
    labels = BY_TYPE[step.type].list_branches(step.props)
    return [
        BranchRow(
            label, None if step.draft is None else step.draft.outcomes.get(key, 0),
            None if step.live is None else step.live.outcomes.get(key, 0),
        )
        for key, label in labels.items()
    ]  # fmt: skip


def describe_headline(result: ReplayResult, days: int) -> str:
    """Return the result in one sentence."""
    draft, live = result.draft, result.live
    if not draft.entered and not (live is not None and live.entered):
        return ngettext(
            "No contact would have entered this flow in the last %(num)s day.",
            "No contact would have entered this flow in the last %(num)s days.", days,
        )  # fmt: skip
    sent = draft.emails + draft.sms
    people = i18n.format_number(draft.people)
    if live is None or not result.is_changed:
        return ngettext(
            "This flow would have sent %(num)s message to %(people)s contacts.",
            "This flow would have sent %(num)s messages to %(people)s contacts.", sent, people=people,
        )  # fmt: skip
    difference = sent - live.emails - live.sms
    if difference > 0:
        return ngettext(
            "With your changes, %(num)s more message would have been sent, to %(people)s contacts in all.",
            "With your changes, %(num)s more messages would have been sent, to %(people)s contacts in all.",
            difference, people=people,
        )  # fmt: skip
    if difference < 0:
        return ngettext(
            "With your changes, %(num)s message fewer would have been sent, to %(people)s contacts in all.",
            "With your changes, %(num)s messages fewer would have been sent, to %(people)s contacts in all.",
            -difference, people=people,
        )  # fmt: skip
    different = result.gained + result.lost + result.changed
    if not different:
        return gettext("Your changes would have made no difference to any contact.")
    return ngettext(
        "With your changes, as many messages would have been sent, but %(num)s contact would have got others, or at "
        "other times.",
        "With your changes, as many messages would have been sent, but %(num)s contacts would have got others, or at "
        "other times.",
        different,
    )  # fmt: skip


def describe_orders(orders: ReplayOrders, is_gained: bool) -> str:
    """Return a sentence about the orders that follow a message of only one version: the changes, if `is_gained`."""
    amount = formats.data_value(round(orders.amount, 2))
    if is_gained:
        return ngettext(
            "%(num)s more order, %(amount)s in all, followed a message that only your changes would have sent.",
            "%(num)s more orders, %(amount)s in all, followed a message that only your changes would have sent.",
            orders.orders, amount=amount,
        )  # fmt: skip
    return ngettext(
        "%(num)s order, %(amount)s in all, followed a message that your changes would not have sent.",
        "%(num)s orders, %(amount)s in all, followed a message that your changes would not have sent.",
        orders.orders, amount=amount,
    )  # fmt: skip


def list_rows(result: ReplayResult) -> list[Row]:
    """Return the table of both versions; without changes there is one column."""
    live = result.live if result.is_changed else None
    has_sms = bool(result.draft.sms or (live is not None and live.sms))

    def build(label: str, describe: Callable[[ReplayTotals], str]) -> Row:
        return Row(label, describe(result.draft), None if live is None else describe(live))

    rows = [
        build(label, partial(_format_count, name))
        for name, label in (
            ("entered", gettext("Entered the flow")), ("people", gettext("Contacts with a message")),
            ("emails", gettext("Emails")), ("sms", gettext("SMS")), ("sms_parts", gettext("SMS parts")),
            ("held", gettext("Held until an allowed time")), ("capped", gettext("Stopped by the frequency cap")),
        )
        if name not in ("sms", "sms_parts") or has_sms
    ]  # fmt: skip
    if any(totals is not None and totals.refused.get(triggers.HELD_OUT) for totals in (result.draft, live)):
        rows.insert(1, build(gettext("Held out (holdout group)"), _count_held_out))
    if result.draft.sms_cost is not None and has_sms:
        rows.append(build(gettext("Cost of SMS"), _format_cost))
    rows.append(build(gettext("Not sent for other reasons"), _count_others))
    rows += [
        build(label, partial(_format_count, name))
        for name, label in (
            ("completed", gettext("Completed")), ("exited", gettext("Exited early")),
            ("live", gettext("Still in the flow")),
        )
    ]  # fmt: skip
    label = ngettext(
        "Orders within %(num)s day of a message", "Orders within %(num)s days of a message", result.order_days
    )
    before = result.orders.orders - result.orders_gained.orders + result.orders_lost.orders
    live_orders = None if live is None else i18n.format_number(before)
    return [*rows, Row(label, i18n.format_number(result.orders.orders), live_orders)]


def _format_count(name: str, totals: ReplayTotals) -> str:
    return i18n.format_number(getattr(totals, name))


def _count_held_out(totals: ReplayTotals) -> str:
    return i18n.format_number(totals.refused.get(triggers.HELD_OUT, 0))


def _format_cost(totals: ReplayTotals) -> str:
    return str(formats.data_value(round(totals.sms_cost or 0.0, 2)))


def _count_others(totals: ReplayTotals) -> str:
    return i18n.format_number(sum(totals.unsent.values()) - totals.capped)


def list_reasons(totals: ReplayTotals) -> list[str]:
    """Return why messages would not have been sent, each with the number."""
    return [
        gettext("%(reason)s: %(number)s", reason=describe_skip(reason), number=i18n.format_number(number))
        for reason, number in sorted(totals.unsent.items(), key=lambda item: -item[1])
    ]


def name_step(account_id: int, step: ReplayStep) -> str:
    """Return the title of a step, as on its card."""
    return flow_tree.describe_step(account_id, {**step.props, "id": step.step_id, "type": step.type})[0]


def list_people(account_id: int, result: ReplayResult, titles: dict[int, str]) -> list[PersonWords]:
    """Return the sample of people with their names; contacts that have been deleted since are left out."""
    stored = {
        contact.id: contact
        for contact in contacts.fetch_by_ids([person.contact_id for person in result.sample])
        if contact.account_id == account_id
    }
    return [
        PersonWords(
            person.contact_id, formats.contact_name(stored[person.contact_id]),
            [_describe_message(message, titles) for message in person.draft],
            [_describe_message(message, titles) for message in person.live],
        )
        for person in result.sample
        if person.contact_id in stored
    ]  # fmt: skip


def _describe_message(message: ReplayMessage, titles: dict[int, str]) -> tuple[int, str, str]:
    reason = describe_skip(message.reason) if message.reason is not None else ""
    return clock.parse(message.at), titles.get(message.step_id, ""), reason


def list_warnings(result: ReplayResult) -> Iterator[str]:
    """Yield the limits of the replay as sentences."""
    for warning in result.warnings:
        yield _describe_warning(warning)


def _describe_warning(warning: ReplayWarning) -> str:
    event = flow_forms.describe_event(warning.event) if warning.event is not None else ""
    number = warning.number or 0
    match warning.code:
        case "sampled":
            return gettext(
                "A sample of %(number)s of %(total)s contacts was replayed: all numbers are those of the sample.",
                number=i18n.format_number(number), total=i18n.format_number(warning.total or 0),
            )  # fmt: skip
        case "event_missing":
            return gettext("“%(event)s” was never recorded, so it could not start or change anything.", event=event)
        case "event_late":
            day = formats.day(clock.parse(warning.at or ""))
            return gettext(
                "“%(event)s” was recorded for the first time on %(day)s. Before that day it is missing.",
                event=event, day=day,
            )  # fmt: skip
        case "imported":
            return ngettext(
                "%(num)s event was imported later. It is replayed at the time when it happened, although it started "
                "nothing then.",
                "%(num)s events were imported later. They are replayed at the time when they happened, although they "
                "started nothing then.",
                number,
            )  # fmt: skip
        case "unfinished":
            return ngettext(
                "%(num)s contact had not reached the end today. Later messages are not counted.",
                "%(num)s contacts had not reached the end today. Later messages are not counted.", number,
            )  # fmt: skip
        case "rounded":
            return ngettext(
                "The time of day is checked every %(num)s minute.", "The time of day is checked every %(num)s minutes.",
                number,
            )  # fmt: skip
    return _describe_plain_warning(warning.code)


def _describe_plain_warning(code: str) -> str:
    return {
        "current_data": gettext("Fields, tags, lists and segments of contacts are those of today, not of that time."),
        "reactions": gettext(
            "Opens, clicks and replies are those of the messages that were really sent. Nobody has reacted to a new "
            "message."
        ),
        "random": gettext("Random splits are drawn again, and equally for both versions."),
        "not_ready": gettext("The flow cannot go live yet, or has unfinished content. It was replayed as it is."),
        "starts_flows": gettext("Other flows that its events would start are not replayed."),
        "sms_estimated": gettext("SMS parts are estimated from the first %(number)s SMS of each step.", number=500),
    }[code]


def describe_error(code: str | None) -> str:
    """Return why a replay failed, and what to do."""
    if code == replays.TOO_SLOW:
        return gettext("The conditions of this flow take too long to check. Use fewer conditions on events.")
    if code == replays.TOO_LONG:
        return gettext("The replay took more than ten minutes. Choose fewer days.")
    return gettext("The replay failed. Try again; if it fails again, the log of the service says why.")


def summarize(account_id: int, result: ReplayResult, days: int) -> dict[str, Any]:
    """Return the template context of the page of a result."""
    titles = {step.step_id: name_step(account_id, step) for step in result.steps}
    orders = [
        describe_orders(count, is_gained)
        for count, is_gained in ((result.orders_gained, True), (result.orders_lost, False))
        if count.orders and result.is_changed and result.live is not None
    ]
    return {
        "headline": describe_headline(result, days), "orders": orders, "rows": list_rows(result), "titles": titles,
        "branches": {step.step_id: list_branches(step) for step in result.steps},
        "people": list_people(account_id, result, titles), "warnings": list(list_warnings(result)),
        "reasons": list_reasons(result.draft), "compares": result.is_changed and result.live is not None,
    }  # fmt: skip
