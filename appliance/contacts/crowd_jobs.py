"""Acts for many people as they go on: begun, taken further in bites, told of, taken back, forgotten.

Whom an act is for is fixed when it begins, so that the number that was asked about is the number it is for. It is kept
in the database and goes on after a restart.
"""

import json
import threading
from collections import Counter
from typing import Any

import msgspec

from appliance import clock
from appliance.account import audit
from appliance.contacts import crowd_acts, lists, store, tags
from appliance.contacts.consent import Evidence
from appliance.contacts.crowd_acts import ACTS, Task
from appliance.db.dialect.documents import among, each_of
from appliance.db.open import connection, one, rows, run, scalar
from appliance.db.work import after_commit, write, writing
from appliance.errors import Invalid, NotFound
from appliance.tables import CrowdAct
from appliance.work import wake_ups

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
    part = one("SELECT id, contact_ids FROM crowd_part WHERE act_id = ? AND done = 0 ORDER BY id LIMIT 1", (act_id,))
    if part is None:
        _end(found, "done")
        return False
    task = Task(
        found.account_id, json.loads(part[1]), found.argument, msgspec.convert(found.evidence, Evidence)
    )  # fmt: skip
    try:
        outcome = crowd_acts.do(found.act, task)
    except NotFound:
        # The list is gone: there is nothing to be in or out of any more
        _end(found, "failed")
        return False
    run("UPDATE crowd_part SET contact_ids = ?, done = 1 WHERE id = ?", (json.dumps(outcome.changed), part[0]))
    found.changed += len(outcome.changed)
    found.skipped = dict(Counter(found.skipped) + outcome.skipped)
    found.updated_at = clock.now_ms()
    found.save()
    if one("SELECT 1 FROM crowd_part WHERE act_id = ? AND done = 0 LIMIT 1", (act_id,)) is None:
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
        f"SELECT value FROM crowd_part, {each_of('crowd_part.contact_ids')} WHERE act_id = ? ORDER BY crowd_part.id",
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
            write(step, act_id)


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
    sql = f"SELECT count(*) FROM contact WHERE account_id = ? AND id {among('?')}"
    return int(scalar(sql, (account_id, json.dumps(contact_ids))))


def first(account_id: int, contact_ids: list[int], number: int = 5) -> list[Any]:
    """Return the first of some people, with their addresses."""
    return [one for one in store.by_ids(contact_ids[:number]) if one.account_id == account_id]
