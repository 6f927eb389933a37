"""Count the contacts and rows of an import by what became of them, from its stored totals."""

from typing import Any

from appliance.storage.models import Import


def strip_sms(state: str) -> str:
    """Return an `Outcome.state` without the suffix that says that the contact is also subscribed to SMS."""
    return state.removesuffix("+sms")


def count_arriving(job: Import) -> dict[str, int]:
    """Return the number of contacts of an import by state: `subscribed`, `unsubscribed` and `suppressed`."""
    counts = dict.fromkeys(("subscribed", "unsubscribed", "suppressed"), 0)
    for state, number in job.arriving.items():
        counts[strip_sms(state).partition(":")[0]] += number
    return counts


# The reasons in an `Outcome.state` why a contact is not subscribed although there is no opt-out
NOT_SUBSCRIBED_REASONS = ("not_opted_in", "unstated", "inactive", "sms_not_opted_in")


def page_state(state: str) -> str:
    """Return the name under which the pages count an `Outcome.state`.

    It is `subscribed`, `not_subscribed` (without an opt-out), `unsubscribed` or `suppressed`.
    """
    kind, _, reason = strip_sms(state).partition(":")
    return "not_subscribed" if reason in NOT_SUBSCRIBED_REASONS else kind


def count_page_states(job: Import) -> dict[str, int]:
    """Return the number of contacts of an import by `page_state`.

    The key `sms_only` has the number of subscribed contacts without an email address, and `sms` the number of all
    contacts who are subscribed to SMS.
    """
    sms_only = job.arriving.get("subscribed:phone", 0)
    sms = sms_only + sum(number for state, number in job.arriving.items() if state != strip_sms(state))
    counts = dict.fromkeys(("subscribed", "not_subscribed", "unsubscribed", "suppressed"), 0)
    for state, number in job.arriving.items():
        counts[page_state(state)] += number
    return {**counts, "sms_only": sms_only, "sms": sms}


def count_repeated(job: Import) -> int:
    """Return the number of rows whose contact also has an earlier row in the file.

    `created` and `updated` count rows, but `arriving` counts each contact once.
    """
    return int(job.created + job.updated - sum(job.arriving.values())) if job.resource == "contacts" else 0


def count_reasons(job: Import) -> dict[str, int]:
    """Return the number of unsubscribed or suppressed contacts of an import by reason, such as `file` or `manual`.

    Subscribed contacts and states without a reason are left out.
    """
    counts: dict[str, int] = {}
    for state, number in job.arriving.items():
        kind, _, reason = strip_sms(state).partition(":")
        if reason and number and kind != "subscribed":
            counts[reason] = counts.get(reason, 0) + number
    return counts


def summarize(job: Import) -> dict[str, Any]:
    """Return the totals of an import by name, from `total` to `warnings`."""
    return {name: getattr(job, name) for name in ("total", "created", "updated", "skipped", "failed", "warnings")}
