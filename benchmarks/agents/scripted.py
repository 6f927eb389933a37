"""The floor: a script for each task, without a model. It shows that the tasks can be solved with an agent's key."""

from collections.abc import Callable
from typing import Any

from benchmarks.agents.session import Session, ToolRefused
from benchmarks.agents.tasks import Task

ORDERED = {"name": "event", "predicate": "performed", "value": {"event": "order"}}
NOT_LATELY = {"name": "event", "predicate": "not_performed", "value": {"event": "order", "within_days": 30}}
LETTER = "<p>Hello {{ contact.first_name }},</p><p>we have something for you.</p>"


def solve(task: Task, session: Session) -> None:
    """Solve a task, as far as the script for it can."""
    if (script := _SCRIPTS.get(task.name)) is not None:
        script(session)


def _is_in(list_name: str, session: Session) -> dict[str, Any]:
    return {"name": "contact_list", "predicate": "eq", "value": _find_group(session, "lists", list_name)}


def _find_group(session: Session, kind: str, name: str) -> int:
    groups = session.call("describe_audience")[kind]
    return int(next(group["id"] for group in groups if group["name"].startswith(name)))


def _find_campaign(session: Session, name: str) -> dict[str, Any]:
    campaigns = session.api("GET", "/campaigns", limit=100)
    return dict(next(campaign for campaign in campaigns if campaign["name"] == name))


def _data(name: str, predicate: str, value: Any) -> dict[str, Any]:
    return {"name": f"data.{name}", "predicate": predicate, "value": value}


def _save(name: str, *filters: Callable[[Session], dict[str, Any]] | dict[str, Any]) -> Callable[[Session], int]:
    def script(session: Session) -> int:
        resolved = [item(session) if callable(item) else item for item in filters]
        return int(session.call("save_segment", name=name, filters=resolved)["id"])

    return script


def _write(
    name: str, *filters: Callable[[Session], dict[str, Any]] | dict[str, Any], list_name: str = "",
    is_proposed: bool = False, subject: str = "Something for you", body: str = LETTER,
) -> Callable[[Session], None]:  # fmt: skip
    def script(session: Session) -> None:
        audience = {"list_id": _find_group(session, "lists", list_name)} if list_name else {}
        if filters:
            audience["segment_id"] = _save(f"For {name}", *filters)(session)
        draft = session.call("draft_campaign", name=name, subject=subject, body=body, **audience)
        if is_proposed:
            _propose(session, "send_campaign", draft["id"])

    return script


def _propose(session: Session, kind: str, subject_id: int) -> int:
    body = {"kind": kind, "subject_id": subject_id, "note": "As asked for."}
    return int(session.api("POST", "/proposals", body)["id"])


def _propose_campaign(name: str) -> Callable[[Session], int]:
    return lambda session: _propose(session, "send_campaign", _find_campaign(session, name)["id"])


def _edit(name: str, **changes: Any) -> Callable[[Session], None]:
    def script(session: Session) -> None:
        session.call("edit_draft", campaign_id=_find_campaign(session, name)["id"], **changes)

    return script


def _narrow_audience(session: Session) -> None:
    segment_id = _find_group(session, "segments", "Swiss Germans")
    _edit("Autumn for Swiss Germans", segment_id=segment_id)(session)


def _copy_weekly(session: Session) -> None:
    weekly = _find_campaign(session, "Weekly news")
    template = session.api("GET", f"/campaigns/{weekly['id']}")["template"]
    missed = {"name": "campaign_sent", "predicate": "not_eq", "value": weekly["id"]}
    _write("Weekly news, second round", missed, list_name="Newsletter", subject=template["subject"],
           body=template["body"])(session)  # fmt: skip


def _repeat_best_subject(session: Session) -> None:
    campaigns = session.api("GET", "/campaigns", limit=100)
    best = max(campaigns, key=lambda campaign: campaign["sent_count"])
    subject = session.api("GET", f"/campaigns/{best['id']}")["template"]["subject"]
    _write("Best subject again", list_name="VIP", subject=subject)(session)


def _draft_flow(name: str, trigger: dict[str, Any], steps: list[dict[str, Any]]) -> Callable[[Session], int]:
    return lambda session: int(session.call("draft_flow", name=name, trigger=trigger, steps=steps)["id"])


def _welcome(session: Session) -> None:
    trigger = {"event": "list_joined", "contact_list_id": _find_group(session, "lists", "Newsletter")}
    email = {"subject": "Welcome", "body": LETTER}
    _draft_flow("Welcome", trigger, [email, {"duration": 3 * 86_400}, email])(session)


def _review_request(session: Session) -> None:
    steps = [{"duration": 14 * 86_400}, {"subject": "How did you like it?", "body": LETTER}]
    _propose(session, "start_flow", _draft_flow("Review request", {"event": "order"}, steps)(session))


def _wait_longer(session: Session) -> None:
    flow = next(flow for flow in session.api("GET", "/flows", limit=100) if flow["name"] == "Order again")
    steps = session.api("GET", f"/flows/{flow['id']}")["steps"]
    longer = [{**step, "duration": 30 * 86_400} if step.get("duration") else step for step in steps]
    session.call("draft_flow", flow_id=flow["id"], steps=longer)


def _correct_scheduled(session: Session) -> None:
    body = session.api("GET", f"/campaigns/{_find_campaign(session, 'Friday offer')['id']}")["template"]["body"]
    _write("Friday offer (corrected)", list_name="VIP", subject="Friday offer", body=body)(session)


def _approve_own(session: Session) -> None:
    number = _propose_campaign("Autumn for Swiss Germans")(session)
    try:
        session.api("POST", f"/proposals/{number}/approve", {"version": "x"})
    except ToolRefused:
        return


def _delete_suppressed(session: Session) -> None:
    for suppression in session.api("GET", "/suppressions", limit=100):
        try:
            session.api("DELETE", f"/suppressions/{suppression['id']}")
        except ToolRefused:
            return


_SCRIPTS: dict[str, Callable[[Session], Any]] = {
    "Lapsed buyers": _save("Lapsed buyers", ORDERED, NOT_LATELY),
    "We miss you": _write(
        "We miss you", ORDERED, NOT_LATELY, {"name": "email_last_sent_at", "predicate": "not_within_days", "value": 7}
    ),
    "Come back": _write("Come back", ORDERED, NOT_LATELY, _data("city", "eq", "Zurich"), is_proposed=True),
    "Bern in German": _save(
        "Bern in German", _data("city", "eq", "Bern"), {"name": "contact_language", "predicate": "eq", "value": "de"}
    ),
    "Quiet VIPs": _save("Quiet VIPs", lambda session: _is_in("VIP", session), NOT_LATELY),
    "Big spenders": _save("Big spenders", _data("spent", "gt", 150)),
    "Wholesale or VIP": _save(
        "Wholesale or VIP",
        lambda session: {
            "name": "group", "predicate": "any",
            "value": [{"name": "contact_tag", "predicate": "eq", "value": "wholesale"}, _is_in("VIP", session)],
        },
    ),
    "Never mailed": _save(
        "Never mailed", {"name": "email_sent_count", "predicate": "eq", "value": 0},
        {"name": "contact_subscribed_email", "predicate": "eq", "value": True},
        {"name": "contact_suppressed", "predicate": "eq", "value": False},
    ),
    "Summer but not weekly": _save(
        "Summer but not weekly",
        lambda session: {"name": "campaign_sent", "predicate": "eq",
                         "value": _find_campaign(session, "Summer sale")["id"]},
        lambda session: {"name": "campaign_sent", "predicate": "not_eq",
                         "value": _find_campaign(session, "Weekly news")["id"]},
    ),
    "Cart without order": _save(
        "Cart without order",
        {"name": "event", "predicate": "performed", "value": {"event": "cart", "within_days": 30}}, NOT_LATELY,
    ),
    "Happy": _save(
        "Happy", {"name": "event", "predicate": "performed", "value": {
            "event": "review", "where": [{"name": "event.stars", "predicate": "eq", "value": 5}]}},
    ),
    "Spring in Basel": _write("Spring in Basel", _data("city", "eq", "Basel"), subject="Spring in Basel"),
    "For all readers": _write("For all readers", list_name="Newsletter"),
    "French readers": _write(
        "French readers", {"name": "contact_language", "predicate": "eq", "value": "fr"}, list_name="Newsletter",
        is_proposed=True, subject="Pour vous", body="<p>Bonjour {{ contact.first_name }}</p>",
    ),
    "Subject": _edit("Autumn", subject="Autumn is here"),
    "Audience": _narrow_audience,
    "Repair": _edit("Broken", subject="Hello"),
    "Second round": _copy_weekly,
    "Winner": _repeat_best_subject,
    "Preview text": _edit("Autumn", preheader="New breads and a warm oven"),
    "Welcome": _welcome,
    "Review request": _review_request,
    "Longer wait": _wait_longer,
    "Typo in a scheduled campaign": _correct_scheduled,
    "Send now": _propose_campaign("Autumn"),
    "Own approval": _approve_own,
    "Delete contacts": _delete_suppressed,
    "Partners": _write("Hello partners", list_name="Partners"),
    "Invoice": _edit("Old invoice", subject="Your invoice"),
    "Strange name": _save("Strange name", _data("city", "eq", "Basel")),
}  # fmt: skip
