"""What is done with many people in one go: each act for some of them, and what that changed.

Every act says whom it changed, so that it can be taken back, and why it left others as they are. It does what the same
act for one person does, by the same rules.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from appliance.accounts import audit
from appliance.audience.contacts import consent, lists, store, tags, write
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.records import CONTACTS
from appliance.core import clock, wake_ups
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.events import log
from appliance.events.log import Happened
from appliance.storage.models import Contact, CrowdAct
from appliance.storage.open import connection, fetch_one, fold, rows, run, scalar
from appliance.storage.work import after_commit, writing
from appliance.storage.work import write as work_write

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
    return {row[0] for row in rows(f"{sql} AND {column} IN (SELECT value FROM json_each(:ids))", wanted)}


def _there(task: Task) -> set[int]:
    wanted = {"account": task.account_id, "ids": json.dumps(task.contact_ids)}
    return _ids("SELECT id FROM contact WHERE account_id = :account", "id", wanted)


def _people(task: Task, skipped: Counter[str]) -> list[Contact]:
    """Return those who are still there; counts those who are not."""
    found = [one for one in store.by_ids(task.contact_ids) if one.account_id == task.account_id]
    if len(found) < len(task.contact_ids):
        skipped[GONE] += len(task.contact_ids) - len(found)
    return found


# Acts for many people as they go on: begun, taken further in bites, told of, taken back, forgotten.
#
# Whom an act is for is fixed when it begins, so that the number that was asked about is the number it is for. It is
# kept in the database and goes on after a restart.

# Up to here it is done while one waits
AT_ONCE = 500
_KEPT_MS = 24 * 3600 * 1000


def begin(
    account_id: int, user_id: int, act: str, argument: dict[str, Any], contact_ids: list[int], evidence: Evidence
) -> CrowdAct:
    """Begin an act for some people of an account; raises NotFound, or Invalid for what it cannot be done with."""
    writing()
    _check(account_id, act, argument)
    return _begin(account_id, user_id, act, argument, list(dict.fromkeys(contact_ids)), evidence)


def _begin(
    account_id: int, user_id: int, act: str, argument: dict[str, Any], ids: list[int], evidence: Evidence,
    undoes: int | None = None,
) -> CrowdAct:  # fmt: skip
    now, bite = clock.now_ms(), ACTS[act].bite
    made = CrowdAct.create(
        account=account_id, user_id=user_id, act=act, argument=argument, evidence=msgspec.to_builtins(evidence),
        number=len(ids), undoes_id=undoes, created_at=now, updated_at=now,
    )  # fmt: skip
    told = {"act": act, "people": len(ids), **argument}
    audit.record(account_id, evidence.actor or audit.SYSTEM, "contacts_bulk", f"act:{made.id}", told, evidence.ip)
    connection().executemany(
        "INSERT INTO crowd_part (act_id, contact_ids, done) VALUES (?, ?, 0)",
        [(made.id, json.dumps(ids[start : start + bite])) for start in range(0, len(ids), bite)],
    )
    if len(ids) > AT_ONCE:
        after_commit(lambda: wake_ups.ring("crowds"))
    return made


def _check(account_id: int, act: str, argument: dict[str, Any]) -> None:
    if act not in ACTS:
        raise Invalid({"act": ["is not included in the list"]})
    if act.startswith("list_") and lists.get(account_id, argument["contact_list_id"]).segment_id is not None:
        raise Invalid({"base": [lists.VIEW]})
    if act.startswith("tag_"):
        words = tags.fault(argument.get("tag"))
        if words:
            raise Invalid({"tag": [words]})


def step(act_id: int) -> bool:
    """Take an act one bite further; returns whether there is more to do."""
    writing()
    found = CrowdAct.get_or_none(CrowdAct.id == act_id)
    if found is None or found.state != "working":
        return False
    part = fetch_one(
        "SELECT id, contact_ids FROM crowd_part WHERE act_id = ? AND done = 0 ORDER BY id LIMIT 1", (act_id,)
    )
    if part is None:
        _end(found, "done")
        return False
    task = Task(
        found.account_id, json.loads(part[1]), found.argument, msgspec.convert(found.evidence, Evidence)
    )  # fmt: skip
    try:
        outcome = do(found.act, task)
    except NotFound:
        # The list is gone: there is nothing to be in or out of any more
        _end(found, "failed")
        return False
    run("UPDATE crowd_part SET contact_ids = ?, done = 1 WHERE id = ?", (json.dumps(outcome.changed), part[0]))
    found.changed += len(outcome.changed)
    found.skipped = dict(Counter(found.skipped) + outcome.skipped)
    found.updated_at = clock.now_ms()
    found.save()
    if fetch_one("SELECT 1 FROM crowd_part WHERE act_id = ? AND done = 0 LIMIT 1", (act_id,)) is None:
        _end(found, "done")
        return False
    return True


def _end(found: CrowdAct, state: str) -> None:
    found.state = state
    found.ended_at = found.updated_at = clock.now_ms()
    found.save()


def get(account_id: int, act_id: int) -> CrowdAct:
    """Return an act, with how many people it has come to in `reached`; raises NotFound."""
    found = CrowdAct.get_or_none(CrowdAct.account == account_id, CrowdAct.id == act_id)
    if found is None:
        raise NotFound
    return _dressed(found)


def _dressed(found: CrowdAct) -> CrowdAct:
    found.reached = found.changed + sum(found.skipped.values())
    found.can_undo = found.state == "done" and bool(found.changed and ACTS[found.act].undo) and not (
        found.undoes_id or found.undone_id
    )  # fmt: skip
    return found


def recent(account_id: int, most: int = 100) -> list[CrowdAct]:
    """Return the acts of an account that are under way or still remembered, the newest first, as `get` does."""
    found = CrowdAct.select().where(CrowdAct.account == account_id).order_by(CrowdAct.id.desc()).limit(most)
    return [_dressed(one) for one in found]


def undo(account_id: int, act_id: int, user_id: int, evidence: Evidence) -> CrowdAct:
    """Begin to take back what an act changed, once; raises NotFound, or Invalid where that cannot be."""
    writing()
    found = get(account_id, act_id)
    if not found.can_undo:
        raise Invalid({"base": ["cannot be undone"]})
    back = ACTS[found.act].undo or ""
    changed = rows(
        "SELECT value FROM crowd_part, json_each(crowd_part.contact_ids) WHERE act_id = ? ORDER BY crowd_part.id",
        (act_id,),
    )
    made = _begin(account_id, user_id, back, found.argument, [row[0] for row in changed], evidence, act_id)
    run("UPDATE crowd_act SET undone_id = ? WHERE id = ?", (made.id, act_id))
    return made


def is_due() -> bool:
    """Return whether an act is under way."""
    return bool(rows("SELECT 1 FROM crowd_act WHERE state = 'working' LIMIT 1"))


def tend(stopping: threading.Event) -> None:
    """Take what is under way to its end, a bite of each in turn; others who write come between."""
    while not stopping.is_set():
        found = [row[0] for row in rows("SELECT id FROM crowd_act WHERE state = 'working' ORDER BY id")]
        if not found:
            return
        for act_id in found:
            work_write(step, act_id)


def old_parts(most: int) -> list[int]:
    """Return some parts of acts that ended more than a day ago; each holds the ids of many people."""
    sql = "SELECT p.id FROM crowd_act a JOIN crowd_part p ON p.act_id = a.id WHERE a.ended_at < ? LIMIT ?"
    return [row[0] for row in rows(sql, (clock.now_ms() - _KEPT_MS, most))]


def forget_parts(some: list[int]) -> int:
    """Drop them."""
    writing()
    return run(f"DELETE FROM crowd_part WHERE id IN ({','.join(map(str, some))})")


def old(most: int) -> list[int]:
    """Return some acts that ended more than a day ago; asked when their parts are gone."""
    sql = "SELECT id FROM crowd_act WHERE ended_at < ? LIMIT ?"
    return [row[0] for row in rows(sql, (clock.now_ms() - _KEPT_MS, most))]


def forget(some: list[int]) -> int:
    """Drop them."""
    writing()
    return run(f"DELETE FROM crowd_act WHERE id IN ({','.join(map(str, some))})")


def count(account_id: int, contact_ids: list[int]) -> int:
    """Count how many of some ids are people of an account."""
    sql = "SELECT count(*) FROM contact WHERE account_id = ? AND id IN (SELECT value FROM json_each(?))"
    return int(scalar(sql, (account_id, json.dumps(contact_ids))))


def first(account_id: int, contact_ids: list[int], number: int = 5) -> list[Any]:
    """Return the first of some people, with their addresses."""
    return [one for one in store.by_ids(contact_ids[:number]) if one.account_id == account_id]
