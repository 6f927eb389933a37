"""The undo of an import keeps what recipients and operators did after it, even if it changed nothing then (P4)."""

import json
import re
from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.sampling import every_nth
from tests.kit.server import Server
from tests.kit.uploads import upload, wait_for_import

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def send_marketing(api: Client, address: str) -> Any:
    """Send a marketing message and return the captured message."""
    content = {"subject": "Hi", "body": "<a href='{{ preferences_url }}'>p</a>"} if "@" in address else {"body": "Hi"}
    channel = "email" if "@" in address else "sms"
    message = api.post("/messages", {"to": address, "channel": channel, "transactional": False, **content}).expect(201)
    [row] = api.wait("/capture", bool, message_id=message["id"])
    return row


def post_form(server: Server, api: Client, row: Any, page: str, form: str) -> None:
    """Post a form to the unsubscribe page (`u`) or the preferences page (`p`) of a captured email."""
    match = re.search(rf"/{page}/[\w-]+", api.get(f"/capture/{row['id']}/raw").text.replace("=\r\n", ""))
    assert match is not None
    assert server.client(None, validate=False).request("POST", match[0], form.encode(), FORM).status == 200


def one_click(server: Server, api: Client, row: Any) -> None:
    """Unsubscribe as a mailbox provider does."""
    post_form(server, api, row, "u", "List-Unsubscribe=One-Click")


def undo(api: Client, job: Any) -> Any:
    """Undo an import and return it."""
    api.post(f"/imports/{job['id']}/undo").expect(200)
    return api.wait(f"/imports/{job['id']}", lambda row: row["phase"] == "undone")


def run_import(api: Client, file: str, resource: str = "contacts", **options: Any) -> Any:
    """Import a file without errors and return the import."""
    job = wait_for_import(api, upload(api, file, resource=resource, **options))
    assert (job["status"], job["failed"]) == ("complete", 0)
    return job


def state(api: Client, address: str) -> tuple[bool, str | None, str | None]:
    """Return whether an address is subscribed, who opted it out, and why it is suppressed."""
    [contact] = api.get("/contacts", search=address).expect(200)
    [channel] = contact["channels"]
    return channel["subscribed"], channel["opted_out_by"], channel["suppression_reason"]


def is_mailed(api: Client, address: str) -> bool:
    """Return whether a marketing email to an address is accepted and sent."""
    content = {"to": address, "subject": "After", "body": "<p>x</p>", "transactional": False}
    response = api.post("/messages", content)
    if response.status == 422:
        return False
    path = f"/messages/{response.expect(201)['id']}"
    row = api.wait(path, lambda row: row["status"] not in ("queued", "sending", "held"))
    return bool(row["status"] == "sent")


def journal_lines(server: Server) -> list[dict[str, Any]]:
    """Return the lines of the journal of opt-outs."""
    return [json.loads(line) for line in (server.data / "optouts.jsonl").read_text().splitlines()]


OPTING_OUT = {
    "status": ("email,status\n{}@example.org,unsubscribed\n", "contacts"),
    "complained": ("email,status\n{}@example.org,complained\n", "contacts"),
    "no": ("email,subscribed_email\n{}@example.org,false\n", "contacts"),
    "complaints": ("email,reason\n{}@example.org,complaint\n", "suppressions"),
}


def merge_opted_out(api: Client, contact: Any, name: str) -> None:
    """Merge another contact, who has opted out, into a contact."""
    other = api.post("/contacts", {"email": f"{name}@other.example"}).expect(201)
    api.patch(f"/contacts/{other['id']}", {"subscribed_email": False}).expect(200)
    api.post(f"/contacts/{contact['id']}/merge", {"contact_id": other["id"]}).expect(200)


@pytest.mark.parametrize("kind", every_nth(OPTING_OUT, 2))
@pytest.mark.parametrize("way", ["one_click", "complain", "preferences", "operator", "import", "merge"])
def test_an_opt_out_after_the_import_survives_its_undo(api: Client, server: Server, kind: str, way: str) -> None:
    """The address stays opted out and is not mailed, whoever asked, and the repetition is in the journal once."""
    if (kind, way) == ("complaints", "preferences"):
        pytest.skip("the page has no box for an address that has complained")
    name = f"later-{kind}-{way}".replace("_", "-")
    file, resource = OPTING_OUT[kind]
    address = f"{name}@example.org"
    contact = api.post("/contacts", {"email": address}).expect(201)
    row = send_marketing(api, address)
    job = run_import(api, file.format(name), resource)
    assert state(api, address)[0] is False
    lines = len(journal_lines(server))
    for _ in range(3):
        if way == "one_click":
            one_click(server, api, row)
        elif way == "complain":
            api.post(f"/capture/{row['id']}/simulate", {"action": "complain"}).expect(200)
        elif way == "preferences":
            number = contact["channels"][0]["id"]
            post_form(server, api, row, "p", f"act=save&channel_shown={number}-off")
        elif way == "operator":
            api.patch(f"/contacts/{contact['id']}", {"subscribed_email": False}).expect(200)
        elif way == "import":
            run_import(api, f"email,status\n{address},unsubscribed\n")
    if way == "merge":
        merge_opted_out(api, contact, name)
    acts = [line["act"] for line in journal_lines(server)[lines:]]
    undo(api, job)

    channel = api.get(f"/contacts/{contact['id']}").expect(200)["channels"][0]
    assert channel["subscribed"] is False
    # Before the merge, the other contact has opted out. The second import replaces the opt-out of an operator by that
    # of the recipient, which the third repeats.
    assert acts.count("opt_out") == (2 if way == "merge" or (kind, way) == ("no", "import") else 1)
    assert not is_mailed(api, address)


def test_without_later_acts_an_undo_restores_everything(api: Client) -> None:
    """The same imports without a later opt-out restore the subscription."""
    for kind, (file, resource) in OPTING_OUT.items():
        address = f"alone-{kind}@example.org"
        api.post("/contacts", {"email": address}).expect(201)
        undo(api, run_import(api, file.format(f"alone-{kind}"), resource))
        assert state(api, address) == (True, None, None)


def test_repeated_lines_of_one_import_do_not_keep_its_opt_outs(api: Client) -> None:
    """An import that names an address in two chunks is undone, because nobody else asked for the opt-out."""
    api.post("/contacts", {"email": "twice@example.org"}).expect(201)
    fillers = "".join(f"filler{number}@example.org,\n" for number in range(1200))
    job = run_import(api, f"email,status\ntwice@example.org,unsubscribed\n{fillers}TWICE@example.org,unsubscribed\n")
    assert state(api, "twice@example.org")[0] is False
    undo(api, job)
    assert state(api, "twice@example.org") == (True, None, None)


def test_imports_that_are_undone_from_the_last_to_the_first(api: Client) -> None:
    """A second import of the same file changes nothing and keeps the contacts; it may be undone first."""
    file = "email\nstack1@example.org\nstack2@example.org\n"
    first, second = run_import(api, file), run_import(api, file)
    assert (first["created"], second["updated"]) == (2, 2)
    undo(api, second)
    assert undo(api, first)["removed"] == 2
    assert api.get("/contacts", search="stack").json == []


def test_a_stop_after_the_import_survives_its_undo(api: Client) -> None:
    """A STOP by SMS keeps the number opted out, whatever the import opted it out for."""
    for index, file in enumerate(("phone,status\n{},unsubscribed\n", "phone,reason\n{},complaint\n")):
        number = f"+1555030010{index}"
        contact = api.post("/contacts", {"phone": number, "opt_in": True}).expect(201)
        row = send_marketing(api, number)
        job = run_import(api, file.format(number), "suppressions" if index else "contacts")
        api.post(f"/capture/{row['id']}/simulate", {"action": "stop"}).expect(200)
        undo(api, job)
        [channel] = api.get(f"/contacts/{contact['id']}").expect(200)["channels"]
        assert (channel["subscribed"], channel["opted_out_by"]) == (False, "recipient")
        assert channel["suppression_reason"] == "stop_keyword"


def test_a_contact_that_opts_out_after_its_import_stays(api: Client, server: Server) -> None:
    """A contact that the import created as opted out keeps the opt-out that it asked for itself."""
    address = "created@example.org"
    contact = api.post("/contacts", {"email": address}).expect(201)
    row = send_marketing(api, address)
    api.delete(f"/contacts/{contact['id']}").expect(200)
    job = run_import(api, f"email,status\n{address},unsubscribed\n")
    one_click(server, api, row)
    undone = undo(api, job)

    assert (undone["removed"], undone["left_in_place"]["changed"]) == (0, 1)
    assert state(api, address) == (False, "recipient", None)
    api.post("/contacts", {"email": address})
    assert not is_mailed(api, address)


def test_an_opt_out_without_a_contact_is_in_the_journal(api: Client, server: Server) -> None:
    """The opt-out of a deleted contact is recorded once, so that a restored backup has it."""
    contact = api.post("/contacts", {"email": "gone@example.org"}).expect(201)
    row = send_marketing(api, "gone@example.org")
    api.delete(f"/contacts/{contact['id']}").expect(200)
    lines = len(journal_lines(server))
    for _ in range(2):
        one_click(server, api, row)
    assert [(line["act"], line["by"]) for line in journal_lines(server)[lines:]] == [("opt_out", "recipient")]


def suppressions(api: Client, address: str) -> list[str]:
    """Return the reasons for which an address is suppressed."""
    return [row["reason"] for row in api.get("/suppressions", address=address).expect(200)]


@pytest.mark.parametrize("resource", ["suppressions", "contacts"])
def test_a_suppression_that_was_asked_for_again_survives_the_undo(api: Client, server: Server, resource: str) -> None:
    """A suppression asked for over the API or by a second import stays; only the others are lifted."""
    reason = "manual" if resource == "suppressions" else "hard_bounce"
    column, value = ("reason", "manual") if resource == "suppressions" else ("status", "bounced")
    names = [f"{resource}-{name}@supp.example" for name in ("api", "again", "bare", "alone")]
    for address in names:
        if "bare" not in address:
            api.post("/contacts", {"email": address}).expect(201)
    job = run_import(api, f"email,{column}\n" + "".join(f"{address},{value}\n" for address in names), resource)
    lines = len(journal_lines(server))
    for _ in range(2):
        api.post("/suppressions", {"address": names[0], "reason": reason, "note": "court order"}).expect(200)
        again = "".join(f"{address},{value}\n" for address in names[1:3])
        second = run_import(api, f"email,{column}\n{again}", resource)
    assert second["created"] == 0
    acts = [(line["act"], line["reason"]) for line in journal_lines(server)[lines:]]
    undone = undo(api, job)

    assert [suppressions(api, address) for address in names] == [[reason]] * 3 + [[]]
    assert acts == [("suppressed", reason)] * 3
    assert [is_mailed(api, address) for address in names] == [False, False, False, True]
    if resource == "suppressions":
        assert (undone["restored"], undone["removed"], undone["left_in_place"]["changed"]) == (1, 1, 3)


def test_another_suppression_of_the_address_stays_in_force(api: Client) -> None:
    """After the undo, the contact has the suppression that was added since, instead of the state before the import."""
    api.post("/contacts", {"email": "both@supp.example"}).expect(201)
    job = run_import(api, "email,reason\nboth@supp.example,complaint\n", "suppressions")
    api.post("/suppressions", {"address": "both@supp.example"}).expect(201)
    undo(api, job)
    assert suppressions(api, "both@supp.example") == ["manual"]
    assert state(api, "both@supp.example")[2] == "manual"
    assert not is_mailed(api, "both@supp.example")


def test_a_contact_added_after_a_suppression_import_is_released(api: Client) -> None:
    """The undo also ends the suppression of a contact that was added after the import."""
    job = run_import(api, "email,reason\nadded@supp.example,manual\n", "suppressions")
    api.post("/contacts", {"email": "added@supp.example"}).expect(201)
    assert state(api, "added@supp.example")[2] == "manual"
    undo(api, job)
    assert state(api, "added@supp.example") == (True, None, None)
    assert is_mailed(api, "added@supp.example")


def test_contacts_that_are_used_since_the_import_stay(api: Client) -> None:
    """Contacts with an event, with evidence of consent, or named by a later import are left in place as changed."""
    uses = ("alone", "event", "second", "skipped", "consent")
    file = "email,first_name\n" + "".join(f"{use}@used.example,Ann\n" for use in uses)
    job = run_import(api, file)
    api.post("/events", {"event": "order_paid", "contact_email": "event@used.example", "amount": 99}).expect(201)
    assert run_import(api, "email,first_name\nsecond@used.example,Ann\n")["updated"] == 1
    assert run_import(api, "email\nskipped@used.example\n", on_conflict="skip")["skipped"] == 1
    api.post("/contacts", {"email": "consent@used.example", "opt_in": True, "consent_text": "At the fair"}).expect(200)
    undone = undo(api, job)

    left = {row["channels"][0]["value"].partition("@")[0] for row in api.all("/contacts", search="used.example")}
    assert left == set(uses) - {"alone"}
    assert (undone["removed"], undone["left_in_place"]["changed"]) == (1, 4)


def test_a_refusal_of_tracking_after_the_import_survives_its_undo(api: Client, server: Server) -> None:
    """A contact who refuses tracking on a page that was opened before the import keeps this choice."""
    contact_ids = {}
    for name in ("refused", "silent"):
        contact_ids[name] = api.post("/contacts", {"email": f"{name}@tracking.example"}).expect(201)["id"]
    row = send_marketing(api, "refused@tracking.example")
    job = run_import(api, "email,tracking\nrefused@tracking.example,none\nsilent@tracking.example,none\n")
    for _ in range(2):
        post_form(server, api, row, "p", "act=save&tracking=none&tracking_shown=full")
    lines = [line for line in journal_lines(server) if line.get("act") == "tracking"]
    undo(api, job)

    assert len(lines) == 1
    tracking = {name: api.get(f"/contacts/{number}").expect(200)["tracking"] for name, number in contact_ids.items()}
    assert tracking == {"refused": "none", "silent": "full"}
