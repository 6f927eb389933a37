"""Bulk actions: one action for many contacts, run in batches, with progress and undo.

Each action follows the rules of the same action for one contact. An action records which contacts it changed, so that
it can be undone, and the number of skipped contacts by reason. The contacts are fixed when the action starts, so that
it affects as many contacts as the user confirmed. Actions are stored in the database and continue after a restart.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit
from appliance.audience import consent, lists
from appliance.audience.consent import Evidence
from appliance.audience.contacts import removal, statuses, store, write
from appliance.core import addresses, clock, signals
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.storage.database import connection, fetch_one, fold_case, rows, run, scalar
from appliance.storage.models import BulkAction, Contact
from appliance.storage.models.account import CONTACTS
from appliance.storage.transactions import after_commit, require_write_transaction
from appliance.storage.transactions import write as work_write

# The reasons for skipping a contact.
IN_LIST, LEFT_LIST, NOT_IN_LIST = "in_list", "left_list", "not_in_list"
TAGGED, UNTAGGED, TOO_MANY_TAGS = "tagged", "untagged", "too_many_tags"
NOT_SUBSCRIBED, MISSING = "not_subscribed", "gone"


class BulkTask(NamedTuple):
    """A batch of contacts, with the argument of the action and the evidence for consent records.

    `argument` has the key `contact_list_id` for list actions and `tag` for tag actions.
    """

    account_id: int
    contact_ids: list[int]
    argument: dict[str, Any]
    evidence: Evidence


class BulkOutcome(NamedTuple):
    """The ids of the contacts that changed, and the number of skipped contacts by reason."""

    changed: list[int]
    skipped: Counter[str]


class ActionKind(NamedTuple):
    """A kind of action: its function, the name of the action that undoes it, and the number of contacts in a batch.

    `undo` is None if the action cannot be undone. A batch occupies the writer for about 20 ms.
    """

    do: Callable[[BulkTask], BulkOutcome]
    undo: str | None
    batch_size: int


def _add_to_list(task: BulkTask) -> BulkOutcome:
    list_id = task.argument["contact_list_id"]
    contact_list = lists.get(task.account_id, list_id)
    params = {"list": list_id, "ids": json.dumps(task.contact_ids)}
    member_ids = _select_ids("SELECT contact_id FROM membership WHERE contact_list_id = :list", "contact_id", params)
    opted_out_ids = _select_ids(
        "SELECT contact_id FROM list_opt_out WHERE contact_list_id = :list", "contact_id", params
    )
    existing_ids = _existing_ids(task)
    new_ids = [
        contact_id
        for contact_id in task.contact_ids
        if contact_id in existing_ids and contact_id not in member_ids and contact_id not in opted_out_ids
    ]
    if contact_list.segment_id is not None:
        new_ids = []
    lists.add_members(task.account_id, list_id, new_ids)
    skipped = Counter(
        {
            IN_LIST: len(member_ids),
            LEFT_LIST: len(opted_out_ids - member_ids),
            MISSING: len(task.contact_ids) - len(existing_ids),
        }
    )
    return BulkOutcome(new_ids, +skipped)


def _remove_from_list(task: BulkTask) -> BulkOutcome:
    list_id = task.argument["contact_list_id"]
    params = {"list": list_id, "ids": json.dumps(task.contact_ids)}
    member_ids = _select_ids("SELECT contact_id FROM membership WHERE contact_list_id = :list", "contact_id", params)
    removed_ids = [contact_id for contact_id in task.contact_ids if contact_id in member_ids]
    if lists.get(task.account_id, list_id).segment_id is not None:
        removed_ids = []
    lists.remove_members(task.account_id, list_id, removed_ids)
    return BulkOutcome(removed_ids, +Counter({NOT_IN_LIST: len(task.contact_ids) - len(removed_ids)}))


def _add_tag(task: BulkTask) -> BulkOutcome:
    tag = str(task.argument["tag"]).strip()
    changed_ids, skipped = [], Counter[str]()
    for contact in _fetch_contacts(task, skipped):
        tags = write.tags_of(contact.data)
        if fold_case(tag) in {fold_case(old_tag) for old_tag in tags}:
            skipped[TAGGED] += 1
        elif not _set_tags(contact, [*tags, tag], task.evidence):
            skipped[TOO_MANY_TAGS] += 1
        else:
            changed_ids.append(contact.id)
    return BulkOutcome(changed_ids, skipped)


def _remove_tag(task: BulkTask) -> BulkOutcome:
    tag = fold_case(str(task.argument["tag"]).strip())
    changed_ids, skipped = [], Counter[str]()
    for contact in _fetch_contacts(task, skipped):
        tags = write.tags_of(contact.data)
        remaining = [old_tag for old_tag in tags if fold_case(old_tag) != tag]
        if remaining == tags or not _set_tags(contact, remaining, task.evidence):
            skipped[UNTAGGED] += 1
        else:
            changed_ids.append(contact.id)
    return BulkOutcome(changed_ids, skipped)


def _set_tags(contact: Contact, new_tags: list[str], evidence: Evidence) -> bool:
    """Set the tags of a contact and record the change.

    Returns False, without a change, if the custom data with these tags would be invalid, such as for too many tags.
    """
    old_tags = write.tags_of(contact.data)
    other_data = {key: value for key, value in contact.data.items() if key != "tags"}
    faults = Faults()
    data = write.check_data({**other_data, "tags": new_tags} if new_tags else other_data, "data", faults)
    if faults.fields:
        return False
    contact.data, contact.updated_at = data, clock.now_ms()
    CONTACTS.save(contact)
    write.record_tag_changes(contact, old_tags)
    log.record(NewEvent(contact.account_id, "contact_update", contact.id, {"source": evidence.source,
                                                                          "fields": ["data"]}))  # fmt: skip
    return True


def _unsubscribe(task: BulkTask) -> BulkOutcome:
    changed_ids, skipped = [], Counter[str]()
    for contact in _fetch_contacts(task, skipped):
        subscribed_channels = [channel for channel in contact.channels if channel.subscribed]
        for channel in contact.channels:
            if channel.subscribed or channel.opt_out_at is not None:
                consent.opt_out(channel, "operator", task.evidence)
        if subscribed_channels:
            run("UPDATE contact SET updated_at = ? WHERE id = ?", (clock.now_ms(), contact.id))
            changed_ids.append(contact.id)
        else:
            skipped[NOT_SUBSCRIBED] += 1
    return BulkOutcome(changed_ids, skipped)


def _delete(task: BulkTask) -> BulkOutcome:
    skipped = Counter[str]()
    existing_ids = [contact.id for contact in _fetch_contacts(task, skipped)]
    for contact_id in existing_ids:
        removal.delete(task.account_id, contact_id)
    return BulkOutcome(existing_ids, skipped)


ACTIONS = {
    "list_add": ActionKind(_add_to_list, "list_remove", 500),
    "list_remove": ActionKind(_remove_from_list, "list_add", 500),
    "tag_add": ActionKind(_add_tag, "tag_remove", 100),
    "tag_remove": ActionKind(_remove_tag, "tag_add", 100),
    "unsubscribe": ActionKind(_unsubscribe, None, 50),
    "delete": ActionKind(_delete, None, 20),
}


def apply(name: str, task: BulkTask) -> BulkOutcome:
    """Apply the action `name` to one batch of contacts; raises NotFound if the list of the action was deleted."""
    require_write_transaction()
    return ACTIONS[name].do(task)


def _select_ids(sql: str, column: str, params: dict[str, Any]) -> set[int]:
    return {row[0] for row in rows(f"{sql} AND {column} IN (SELECT value FROM json_each(:ids))", params)}


def _existing_ids(task: BulkTask) -> set[int]:
    params = {"account": task.account_id, "ids": json.dumps(task.contact_ids)}
    return _select_ids("SELECT id FROM contact WHERE account_id = :account", "id", params)


def _fetch_contacts(task: BulkTask, skipped: Counter[str]) -> list[Contact]:
    """Return the contacts of a batch that still exist, and add the number of missing ones to `skipped`."""
    contacts = [contact for contact in store.fetch_by_ids(task.contact_ids) if contact.account_id == task.account_id]
    if len(contacts) < len(task.contact_ids):
        skipped[MISSING] += len(task.contact_ids) - len(contacts)
    return contacts


# An action for up to this number of contacts is completed within its request. The job `bulk_actions` runs larger
# actions.
MAX_SYNC_CONTACTS = 500
RETENTION_MS = clock.DAY_MS


def start(
    account_id: int, user_id: int, act: str, argument: dict[str, Any], contact_ids: list[int], evidence: Evidence
) -> BulkAction:
    """Store an action for contacts of an account; duplicate ids are ignored.

    A job runs it; with up to `MAX_SYNC_CONTACTS` contacts, the caller calls `run_batch` until it returns False.
    Raises NotFound if the list does not exist, and Invalid for an unknown action, an invalid tag, or a list that
    mirrors a segment.
    """
    require_write_transaction()
    _check(account_id, act, argument)
    return _start(account_id, user_id, act, argument, list(dict.fromkeys(contact_ids)), evidence)


def _start(
    account_id: int, user_id: int, act: str, argument: dict[str, Any], ids: list[int], evidence: Evidence,
    undoes: int | None = None,
) -> BulkAction:  # fmt: skip
    now, size = clock.now_ms(), ACTIONS[act].batch_size
    row = BulkAction.create(
        account=account_id, user_id=user_id, action=act, argument=argument, evidence=msgspec.to_builtins(evidence),
        contact_count=len(ids), undoes_id=undoes, created_at=now, updated_at=now,
    )  # fmt: skip
    details = {"act": act, "people": len(ids), **argument}
    audit.insert_entry(
        account_id, evidence.actor or audit.SYSTEM, "contacts_bulk", f"act:{row.id}", details, evidence.ip
    )
    connection().executemany(
        "INSERT INTO bulk_action_part (bulk_action_id, contact_ids, done) VALUES (?, ?, 0)",
        [(row.id, json.dumps(ids[start : start + size])) for start in range(0, len(ids), size)],
    )
    if len(ids) > MAX_SYNC_CONTACTS:
        after_commit(lambda: signals.wake("bulk_actions"))
    return row


def _check(account_id: int, act: str, argument: dict[str, Any]) -> None:
    if act not in ACTIONS:
        raise Invalid({"act": [gettext("is not included in the list")]})
    if act.startswith("list_") and lists.get(account_id, argument["contact_list_id"]).segment_id is not None:
        raise Invalid({"base": [gettext(lists.MIRROR_MESSAGE)]})
    if act.startswith("tag_"):
        error = write.find_tag_error(argument.get("tag"))
        if error:
            raise Invalid({"tag": [error]})


def run_batch(act_id: int) -> bool:
    """Apply the next batch of an action and return whether more batches remain.

    The action ends with the state `done` after the last batch, or `failed` if its list was deleted.
    """
    require_write_transaction()
    bulk_action = BulkAction.get_or_none(BulkAction.id == act_id)
    if bulk_action is None or bulk_action.state != "working":
        return False
    batch = fetch_one(
        "SELECT id, contact_ids FROM bulk_action_part WHERE bulk_action_id = ? AND done = 0 ORDER BY id LIMIT 1",
        (act_id,),
    )
    if batch is None:
        _finish(bulk_action, "done")
        return False
    task = BulkTask(
        bulk_action.account_id,
        json.loads(batch[1]),
        bulk_action.argument,
        msgspec.convert(bulk_action.evidence, Evidence),
    )
    try:
        # An action on a single contact stays an event of that contact.
        with log.in_batch(f"act:{act_id}") if bulk_action.contact_count > 1 else nullcontext():
            outcome = apply(bulk_action.action, task)
    except NotFound:
        # The list of the action was deleted after the action started.
        _finish(bulk_action, "failed")
        return False
    run("UPDATE bulk_action_part SET contact_ids = ?, done = 1 WHERE id = ?", (json.dumps(outcome.changed), batch[0]))
    bulk_action.changed += len(outcome.changed)
    bulk_action.skipped = dict(Counter(bulk_action.skipped) + outcome.skipped)
    bulk_action.updated_at = clock.now_ms()
    bulk_action.save()
    if fetch_one("SELECT 1 FROM bulk_action_part WHERE bulk_action_id = ? AND done = 0 LIMIT 1", (act_id,)) is None:
        _finish(bulk_action, "done")
        return False
    return True


def _finish(action: BulkAction, state: str) -> None:
    action.state = state
    action.ended_at = action.updated_at = clock.now_ms()
    action.save()
    if action.changed and action.contact_count > 1:
        data = {"bulk_action_id": action.id, "action": action.action, "argument": action.argument, "state": state,
                "changed": action.changed, "skipped": action.skipped, "actor": f"user:{action.user_id}"}  # fmt: skip
        log.record(NewEvent(action.account_id, "bulk_action_completed", None, data, f"act:{action.id}"))
    statuses.forget_counts(action.account_id)


def get(account_id: int, act_id: int) -> BulkAction:
    """Return an action of an account; raises NotFound.

    The row gets two more attributes: `processed`, the number of contacts processed, and `can_undo`.
    """
    action = BulkAction.get_or_none(BulkAction.account == account_id, BulkAction.id == act_id)
    if action is None:
        raise NotFound
    return _with_progress(action)


def _with_progress(bulk_action: BulkAction) -> BulkAction:
    bulk_action.processed = bulk_action.changed + sum(bulk_action.skipped.values())
    is_undoable = bulk_action.changed and ACTIONS[bulk_action.action].undo
    is_undo_or_undone = bulk_action.undoes_id or bulk_action.undone_id
    bulk_action.can_undo = bulk_action.state == "done" and bool(is_undoable) and not is_undo_or_undone
    return bulk_action


def fetch_recent(account_id: int, max_actions: int = 100) -> list[BulkAction]:
    """Return up to `max_actions` actions of an account, newest first, with the attributes that `get` adds."""
    actions = (
        BulkAction.select().where(BulkAction.account == account_id).order_by(BulkAction.id.desc()).limit(max_actions)
    )
    return [_with_progress(action) for action in actions]


def undo(account_id: int, act_id: int, user_id: int, evidence: Evidence) -> BulkAction:
    """Start the opposite action for the contacts that an action changed, as `start` does, and return the new action.

    Raises NotFound. Raises Invalid if the action has not ended as `done`, changed nothing, has no opposite, is itself
    an undo or is already undone.
    """
    require_write_transaction()
    bulk_action = get(account_id, act_id)
    if not bulk_action.can_undo:
        raise Invalid({"base": [gettext("cannot be undone")]})
    undo_name = ACTIONS[bulk_action.action].undo or ""
    changed_ids = rows(
        "SELECT value FROM bulk_action_part, json_each(bulk_action_part.contact_ids) WHERE bulk_action_id = ? ORDER "
        "BY bulk_action_part.id",
        (act_id,),
    )
    undo_action = _start(
        account_id, user_id, undo_name, bulk_action.argument, [row[0] for row in changed_ids], evidence, act_id
    )
    run("UPDATE bulk_action SET undone_id = ? WHERE id = ?", (undo_action.id, act_id))
    return undo_action


def is_due() -> bool:
    """Return whether any action is in progress."""
    return bool(rows("SELECT 1 FROM bulk_action WHERE state = 'working' LIMIT 1"))


def run_due(stopping: threading.Event) -> None:
    """Run all actions in progress to their end, or until `stopping` is set.

    The actions take turns, and each batch is its own write transaction, so that other writes can run in between.
    """
    while not stopping.is_set():
        action_ids = [row[0] for row in rows("SELECT id FROM bulk_action WHERE state = 'working' ORDER BY id")]
        if not action_ids:
            return
        for act_id in action_ids:
            work_write(run_batch, act_id)


def find_expired_parts(limit: int) -> list[int]:
    """Return the ids of up to `limit` batches of actions that ended more than `RETENTION_MS` ago."""
    sql = (
        "SELECT p.id FROM bulk_action a JOIN bulk_action_part p ON p.bulk_action_id = a.id WHERE a.ended_at < ? LIMIT ?"
    )
    return [row[0] for row in rows(sql, (clock.now_ms() - RETENTION_MS, limit))]


def delete_parts(ids: list[int]) -> int:
    """Delete the batches with these ids and return their number."""
    require_write_transaction()
    return run(f"DELETE FROM bulk_action_part WHERE id IN ({','.join(map(str, ids))})")


def find_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` actions that ended more than `RETENTION_MS` ago.

    Delete their batches first (`find_expired_parts`): deleting an action deletes its remaining batches in one
    statement.
    """
    sql = "SELECT id FROM bulk_action WHERE ended_at < ? LIMIT ?"
    return [row[0] for row in rows(sql, (clock.now_ms() - RETENTION_MS, limit))]


def delete(ids: list[int]) -> int:
    """Delete the actions with these ids and return their number."""
    require_write_transaction()
    return run(f"DELETE FROM bulk_action WHERE id IN ({','.join(map(str, ids))})")


def count_contacts(account_id: int, contact_ids: list[int]) -> int:
    """Return how many of `contact_ids` are contacts of the account."""
    sql = "SELECT count(*) FROM contact WHERE account_id = ? AND id IN (SELECT value FROM json_each(?))"
    return int(scalar(sql, (account_id, json.dumps(contact_ids))))


def fetch_first_contacts(account_id: int, contact_ids: list[int], number: int = 5) -> list[Any]:
    """Return the contacts with the first `number` ids, with their channels; ids of other accounts are skipped."""
    return [contact for contact in store.fetch_by_ids(contact_ids[:number]) if contact.account_id == account_id]


MEMBERSHIP_CHUNK = 500
MAX_REFERENCES = 10_000
_REFERENCES_SCHEMA = {"type": "array", "maxItems": MAX_REFERENCES, "items": {"type": ["integer", "string"]}}
ContactReferences = Annotated[Any, Meta(extra_json_schema=_REFERENCES_SCHEMA)]


class BulkWrite(Struct):
    """The contacts to add to and to remove from a list, each by id or email address."""

    add: Annotated[ContactReferences, Meta(description="contacts to add, by id or email address")] | UnsetType = UNSET
    remove: Annotated[ContactReferences, Meta(description="contacts to remove, by id or email address")] | UnsetType = (
        UNSET
    )


class BulkDone(Struct):
    """The result of adding contacts to a list and removing contacts from it."""

    added: Annotated[int, Meta(description="number of contacts added")]
    removed: Annotated[int, Meta(description="number of contacts removed")]
    unknown: Annotated[list[int | str], Meta(description="values that match no contact, as sent")]
    kept_opt_out: Annotated[
        list[str], Meta(description="contacts that had left the list themselves and were not added again")
    ]


class MembershipPlan(NamedTuple):
    """The ids of the contacts to add and to remove, and the ids and addresses that match no contact."""

    add: list[int]
    remove: list[int]
    unknown: list[int | str]


def plan_membership(account_id: int, list_id: int, request: BulkWrite) -> MembershipPlan:
    """Return which contacts a request would add to and remove from a list, without changing anything.

    Raises NotFound for an unknown list. Raises Invalid for malformed ids or addresses, for more than `MAX_REFERENCES`
    contacts to add or to remove, and for a list that mirrors a segment.
    """
    contact_list = lists.get(account_id, list_id)
    faults = Faults()
    references: dict[str, list[int | str]] = {}
    for name in ("add", "remove"):
        references[name] = _read_references(name, getattr(request, name), faults)
    if contact_list.segment_id is not None:
        faults.add("base", gettext(lists.MIRROR_MESSAGE))
    faults.check()
    unknown: list[int | str] = []
    add, remove = (_find_contact_ids(account_id, references[name], unknown) for name in ("add", "remove"))
    return MembershipPlan(add, remove, list(dict.fromkeys(unknown)))


def _read_references(name: str, raw: Any, faults: Faults) -> list[int | str]:
    if raw is UNSET or raw is None:
        return []
    if not isinstance(raw, list):
        faults.add(name, gettext("is invalid"))
        return []
    if len(raw) > MAX_REFERENCES:
        faults.add(name, gettext("is too long (maximum is %(limit)s entries)", limit=MAX_REFERENCES))
        return []
    for index, reference in enumerate(raw):
        if (
            isinstance(reference, bool)
            or not isinstance(reference, int | str)
            or (isinstance(reference, str) and not _is_plausible(reference))
        ):
            faults.add(f"{name}[{index}]", gettext("is invalid"))
    return raw


def _is_plausible(text: str) -> bool:
    return 0 < len(text) <= 254 and text.isprintable()


def _find_contact_ids(account_id: int, references: list[int | str], unknown: list[int | str]) -> list[int]:
    numbers = [reference for reference in references if isinstance(reference, int) and 0 < reference < 2**63]
    keys = {reference: _email_key(reference) for reference in references if isinstance(reference, str)}
    existing_ids = {row[0]: row[0] for row in rows(
        "SELECT id FROM contact WHERE account_id = ? AND id IN (SELECT value FROM json_each(?))",
        (account_id, json.dumps(numbers)),
    )}  # fmt: skip
    owners = dict(
        rows(
            "SELECT key, contact_id FROM channel WHERE account_id = ? AND kind = 'email' AND key IN "
            "(SELECT value FROM json_each(?))",
            (account_id, json.dumps([key for key in keys.values() if key])),
        )
    )
    contact_ids = []
    for reference in references:
        owner = existing_ids.get(reference) if isinstance(reference, int) else owners.get(keys[reference])
        if owner is None:
            unknown.append(reference)
        else:
            contact_ids.append(owner)
    return list(dict.fromkeys(contact_ids))


def _email_key(text: str) -> str | None:
    try:
        return addresses.parse_email(text).key
    except ValueError:
        return None
