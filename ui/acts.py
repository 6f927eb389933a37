"""Acts for many people, in words: what is going on, what became of it, what is asked before it."""

from typing import Any

from appliance.audience.contacts import lists
from appliance.core import errors
from ui import words

_SKIPPED = {
    "in_list": "already in the list",
    "left_list": "had left it by their own act",
    "not_in_list": "not in the list",
    "tagged": "had the tag already",
    "untagged": "did not have it",
    "too_many_tags": "with too many tags already",
    "not_subscribed": "not subscribed",
    "gone": "no longer there",
}


def name_of(account_id: int, act: str, argument: dict[str, Any]) -> str:
    """Return what an act is about: the name of a list, or a tag."""
    if not act.startswith("list_"):
        return str(argument.get("tag", ""))
    try:
        return str(lists.get(account_id, argument["contact_list_id"]).name)
    except errors.NotFound:
        return "a list that is gone"


def going(act: Any, name: str) -> str:
    """Return what is going on."""
    reached, number = words.number(act.reached), words.people(act.number)
    return {
        "list_add": f"Adding to {name}: {reached} of {number}",
        "list_remove": f"Taking out of {name}: {reached} of {number}",
        "tag_add": f"Tagging with {name}: {reached} of {number}",
        "tag_remove": f"Taking off the tag {name}: {reached} of {number}",
        "unsubscribe": f"Unsubscribing: {reached} of {number}",
        "delete": f"Deleting: {reached} of {number}",
    }[act.act]


def quarter(act: Any) -> str:
    """Return how far an act is in quarters, for those who listen."""
    share = 25 * (4 * act.reached // act.number) if act.number else 100
    return f"{share} % done"


def done(act: Any, name: str) -> str:
    """Return what became of an act, and whom it left as they are."""
    if act.state == "failed":
        return f"{name} was deleted meanwhile. {words.people(act.changed)} were reached before."
    who = words.people(act.changed) if act.changed else "Nobody"
    said = {
        "list_add": f"{who} added to {name}.",
        "list_remove": f"{who} taken out of {name}.",
        "tag_add": f"{who} tagged {name}.",
        "tag_remove": f"Tag {name} taken off {words.people(act.changed) if act.changed else 'nobody'}.",
        "unsubscribe": f"{who} unsubscribed.",
        "delete": f"{who} deleted.",
    }[act.act]
    return f"{said}{_left(act.skipped)}"


def _left(skipped: dict[str, int]) -> str:
    if not skipped:
        return ""
    parts = [f"{words.number(number)} {_SKIPPED[reason]}" for reason, number in skipped.items()]
    total = words.number(sum(skipped.values()))
    return f" Skipped {total}: {_SKIPPED[next(iter(skipped))]}." if len(parts) == 1 else (
        f" Skipped {total}: {words.listed(parts)}."
    )  # fmt: skip


def question(act: str, number: int) -> dict[str, str]:
    """Return what is asked before an act that cannot be undone: title, text, verb, and the safe way out."""
    who = words.people(number)
    if act == "unsubscribe":
        return {
            "title": f"Unsubscribe {who}?",
            "text": "No campaign reaches them any more, by email or SMS. Messages they cause themselves, such as "
            "receipts, still do. Who agrees anew is subscribed again.",
            "verb": f"Unsubscribe {who}",
            "keep": "Keep them subscribed",
        }
    return {
        "title": f"Delete {who}?",
        "text": "They go for good, with their addresses, data and places in lists. If they unsubscribed, that is "
        "remembered should they be added again.",
        "verb": f"Delete {who}",
        "keep": "Keep them",
    }
