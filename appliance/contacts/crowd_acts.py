"""What is done with many people in one go: each act for some of them, and what that changed.

Every act says whom it changed, so that it can be taken back, and why it left others as they are. It does what the same
act for one person does, by the same rules.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from appliance import clock
from appliance.contacts import consent, lists, store, tags, write
from appliance.contacts.consent import Evidence
from appliance.contacts.records import CONTACTS
from appliance.db.case_folding import fold
from appliance.db.dialect.documents import among
from appliance.db.open import rows, run
from appliance.db.work import writing
from appliance.errors import Faults
from appliance.events import log
from appliance.events.log import Happened
from appliance.tables import Contact

# Why somebody was left as they are
IN_LIST, LEFT_LIST, NOT_IN_LIST = "in_list", "left_list", "not_in_list"
TAGGED, UNTAGGED, TOO_MANY_TAGS = "tagged", "untagged", "too_many_tags"
NOT_SUBSCRIBED, GONE = "not_subscribed", "gone"


class Task(NamedTuple):
    """Whom an act is for, what it needs, and how it came about."""

    account_id: int
    contact_ids: list[int]
    argument: dict[str, Any]
    evidence: Evidence


class Outcome(NamedTuple):
    """Who was changed, and how many were not, by reason."""

    changed: list[int]
    skipped: Counter[str]


class Act(NamedTuple):
    """An act: what it does, the one that takes it back, and how many people it takes at a time.

    A bite is what the writer is kept from others for: about 20 ms.
    """

    do: Callable[[Task], Outcome]
    undo: str | None
    bite: int


def _join(task: Task) -> Outcome:
    list_id = task.argument["contact_list_id"]
    found = lists.get(task.account_id, list_id)
    wanted = {"list": list_id, "ids": json.dumps(task.contact_ids)}
    inside = _ids("SELECT contact_id FROM membership WHERE contact_list_id = :list", "contact_id", wanted)
    left = _ids("SELECT contact_id FROM list_refusal WHERE contact_list_id = :list", "contact_id", wanted)
    there = _there(task)
    new = [one for one in task.contact_ids if one in there and one not in inside and one not in left]
    if found.segment_id is not None:
        new = []
    lists.join(task.account_id, list_id, new)
    skipped = Counter({IN_LIST: len(inside), LEFT_LIST: len(left - inside), GONE: len(task.contact_ids) - len(there)})
    return Outcome(new, +skipped)


def _leave(task: Task) -> Outcome:
    list_id = task.argument["contact_list_id"]
    wanted = {"list": list_id, "ids": json.dumps(task.contact_ids)}
    inside = _ids("SELECT contact_id FROM membership WHERE contact_list_id = :list", "contact_id", wanted)
    members = [one for one in task.contact_ids if one in inside]
    if lists.get(task.account_id, list_id).segment_id is not None:
        members = []
    lists.leave(task.account_id, list_id, members)
    return Outcome(members, +Counter({NOT_IN_LIST: len(task.contact_ids) - len(members)}))


def _tag(task: Task) -> Outcome:
    tag = str(task.argument["tag"]).strip()
    changed, skipped = [], Counter[str]()
    for contact in _people(task, skipped):
        had = tags.of(contact.data)
        if fold(tag) in {fold(one) for one in had}:
            skipped[TAGGED] += 1
        elif not _retagged(contact, [*had, tag], task.evidence):
            skipped[TOO_MANY_TAGS] += 1
        else:
            changed.append(contact.id)
    return Outcome(changed, skipped)


def _untag(task: Task) -> Outcome:
    tag = fold(str(task.argument["tag"]).strip())
    changed, skipped = [], Counter[str]()
    for contact in _people(task, skipped):
        had = tags.of(contact.data)
        left = [one for one in had if fold(one) != tag]
        if left == had or not _retagged(contact, left, task.evidence):
            skipped[UNTAGGED] += 1
        else:
            changed.append(contact.id)
    return Outcome(changed, skipped)


def _retagged(contact: Contact, wanted: list[str], evidence: Evidence) -> bool:
    """Give a contact exactly these tags; False where that is more than there may be."""
    had = tags.of(contact.data)
    others = {key: value for key, value in contact.data.items() if key != "tags"}
    faults = Faults()
    data = tags.checked({**others, "tags": wanted} if wanted else others, "data", faults)
    if faults.fields:
        return False
    contact.data, contact.updated_at = data, clock.now_ms()
    CONTACTS.save(contact)
    tags.tell(contact, had)
    log.record(Happened(contact.account_id, "contact_update", contact.id, {"source": evidence.source,
                                                                          "fields": ["data"]}))  # fmt: skip
    return True


def _unsubscribe(task: Task) -> Outcome:
    changed, skipped = [], Counter[str]()
    for contact in _people(task, skipped):
        mine = [channel for channel in contact.channels if channel.subscribed]
        for channel in mine:
            consent.opt_out(channel, "operator", task.evidence)
        if mine:
            run("UPDATE contact SET updated_at = ? WHERE id = ?", (clock.now_ms(), contact.id))
            changed.append(contact.id)
        else:
            skipped[NOT_SUBSCRIBED] += 1
    return Outcome(changed, skipped)


def _delete(task: Task) -> Outcome:
    skipped = Counter[str]()
    there = [contact.id for contact in _people(task, skipped)]
    for contact_id in there:
        write.delete(task.account_id, contact_id)
    return Outcome(there, skipped)


ACTS = {
    "list_add": Act(_join, "list_remove", 500),
    "list_remove": Act(_leave, "list_add", 500),
    "tag_add": Act(_tag, "tag_remove", 100),
    "tag_remove": Act(_untag, "tag_add", 100),
    "unsubscribe": Act(_unsubscribe, None, 50),
    "delete": Act(_delete, None, 20),
}


def do(name: str, task: Task) -> Outcome:
    """Do an act for some people; raises NotFound where what it needs is gone."""
    writing()
    return ACTS[name].do(task)


def _ids(sql: str, column: str, wanted: dict[str, Any]) -> set[int]:
    return {row[0] for row in rows(f"{sql} AND {column} {among(':ids')}", wanted)}


def _there(task: Task) -> set[int]:
    wanted = {"account": task.account_id, "ids": json.dumps(task.contact_ids)}
    return _ids("SELECT id FROM contact WHERE account_id = :account", "id", wanted)


def _people(task: Task, skipped: Counter[str]) -> list[Contact]:
    """Return those who are still there; counts those who are not."""
    found = [one for one in store.by_ids(task.contact_ids) if one.account_id == task.account_id]
    if len(found) < len(task.contact_ids):
        skipped[GONE] += len(task.contact_ids) - len(found)
    return found
