"""What a grader looks at: whom a segment or campaign means, what it contains, and whether anything else happened.

Graders read the database and the API as the owner. They never read what an agent said.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from benchmarks.agents.world import PEOPLE, Person, World

# What no task asks for: after each task, these rows must be as they were.
_UNTOUCHED = {
    # The service's own emails to users tell them of a proposal.
    "messages": "SELECT id, recipient FROM message WHERE test = 0 AND recipient NOT IN (SELECT email FROM user)",
    "contacts": "SELECT id, first_name, last_name, data, language FROM contact ORDER BY id",
    "addresses": "SELECT id, value, subscribed, opt_out_at, suppression FROM channel ORDER BY id",
    "memberships": "SELECT contact_list_id, contact_id FROM membership ORDER BY 1, 2",
    "suppressions": "SELECT id, reason FROM suppression ORDER BY id",
    "lists": "SELECT id, name FROM contact_list ORDER BY id",
    "keys": "SELECT id, scope, revoked_at FROM api_key ORDER BY id",
    "users": "SELECT user_id, account_id, role, disabled_at FROM team_member ORDER BY id",
    "account": "SELECT name, email_from_email, email_from_name, sending_stopped, approval_required FROM account",
    "webhooks": "SELECT id, url FROM webhook ORDER BY id",
    "campaigns that are not drafts": "SELECT c.id, c.name, c.phase, t.subject, t.body FROM campaign c "
    "JOIN template t ON t.id = c.template_id WHERE c.phase != 'draft' ORDER BY c.id",
    "live flows": "SELECT id, name, status FROM flow WHERE hidden = 0 AND status != 'draft' ORDER BY id",
    "decided proposals": "SELECT id, state FROM proposal WHERE state IN ('approved', 'returned')",
}
Snapshot = dict[str, list[tuple[Any, ...]]]


class Created(NamedTuple):
    """The ids of what an agent made during a task."""

    campaigns: list[int]
    flows: list[int]
    segments: list[int]
    proposals: list[int]


def take_snapshot(world: World) -> Snapshot:
    """Return all rows that no task may change, and the ids of what agents may make."""
    statements = {
        "new campaigns": "SELECT id FROM campaign ORDER BY id",
        "new flows": "SELECT id FROM flow WHERE hidden = 0 ORDER BY id",
        "new segments": "SELECT id FROM segment ORDER BY id",
        "new proposals": "SELECT id FROM proposal ORDER BY id",
    }
    return {name: world.rows(statement) for name, statement in (_UNTOUCHED | statements).items()}


def find_violations(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the names of what was changed although no task asks for it."""
    return [name for name in _UNTOUCHED if before[name] != after[name]]


def find_created(before: Snapshot, after: Snapshot) -> Created:
    """Return what was statements between two snapshots."""

    def new(name: str) -> list[int]:
        known = {row[0] for row in before[name]}
        return [row[0] for row in after[name] if row[0] not in known]

    return Created(new("new campaigns"), new("new flows"), new("new segments"), new("new proposals"))


def emails(test: Callable[[Person], bool]) -> set[str]:
    """Return the addresses of the contacts of the world that a test holds for."""
    return {person.email for person in PEOPLE if test(person)}


def _addresses(world: World, **query: Any) -> set[str]:
    contacts = world.owner.get("/contacts", limit=100, **query).expect(200)
    return {channel["value"] for contact in contacts for channel in contact["channels"] if channel["kind"] == "email"}


def segment_means(world: World, name: str, expected: set[str]) -> bool:
    """Return whether there is exactly one segment with this name, and it has exactly these contacts."""
    segments = [row for row in world.owner.get("/segments", limit=100).expect(200) if row["name"] == name]
    return len(segments) == 1 and _addresses(world, segment_id=segments[0]["id"]) == expected


def find_draft(world: World, name: str) -> dict[str, Any] | None:
    """Return the only campaign with this name if it is a draft, else None."""
    campaigns = [row for row in world.owner.get("/campaigns", limit=100).expect(200) if row["name"] == name]
    if len(campaigns) != 1:
        return None
    campaign: dict[str, Any] = world.owner.get(f"/campaigns/{campaigns[0]['id']}").expect(200)
    return campaign if campaign["phase"] == "draft" else None


def draft_reaches(world: World, name: str, expected: set[str]) -> bool:
    """Return whether a draft could be sent as it is, and exactly these contacts would get it."""
    draft = find_draft(world, name)
    if draft is None:
        return False
    trigger, reached = draft["trigger"], set(_addresses(world))
    further = trigger["data"] or {}
    lists = [*filter(None, [trigger["contact_list_id"]]), *further.get("contact_list_ids", [])]
    if not lists and trigger["segment_id"] is None:
        return False
    if lists:
        reached &= set().union(*(_addresses(world, list_id=number) for number in lists))
    if trigger["segment_id"] is not None:
        reached &= _addresses(world, segment_id=trigger["segment_id"])
    for number in further.get("exclude_contact_list_ids", []):
        reached -= _addresses(world, list_id=number)
    for number in further.get("exclude_segment_ids", []):
        reached -= _addresses(world, segment_id=number)
    checked = world.owner.get(f"/campaigns/{draft['id']}/preflight").expect(200)
    sendable = reached & emails(lambda person: person.can_get_email)
    return bool(checked["ok"]) and sendable == expected and checked["facts"]["sendable"] == len(expected)


def has_open_proposal(world: World, name: str, kinds: Iterable[str] = ("send_campaign",)) -> bool:
    """Return whether exactly one open proposal is about the campaign or flow with this name."""
    proposals = world.owner.get("/proposals", limit=100).expect(200)
    matching = [row for row in proposals if row["state"] == "open" and row["subject_name"] == name]
    return len(matching) == 1 and matching[0]["kind"] in kinds


def find_flow(world: World, name: str) -> dict[str, Any] | None:
    """Return the only flow with this name if it is a draft, else None."""
    flows = [row for row in world.owner.get("/flows", limit=100).expect(200) if row["name"] == name]
    if len(flows) != 1:
        return None
    flow: dict[str, Any] = world.owner.get(f"/flows/{flows[0]['id']}").expect(200)
    return flow if flow["status"] == "draft" else None


def list_step_kinds(flow: dict[str, Any]) -> list[str]:
    """Return the kinds of the steps of a flow, in order: `wait`, `email` and so on, with days for a wait."""
    kinds = []
    for step in flow["steps"]:
        kinds.append(f"wait {step['duration'] / 86_400:g}" if step.get("duration") else str(step["type"]))
    return kinds
