"""A no in an imported file is an opt-out, which only a yes of that person lifts; an undo takes it back and says so."""

from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.uploads import import_results, upload, wait_for_import

SUBSCRIBED, OPTED_OUT, NOT_SUBSCRIBED = (True, None), (False, "operator"), (False, None)


def run_import(api: Client, file: str, **options: Any) -> Any:
    """Import a file without errors and return the import."""
    job = wait_for_import(api, upload(api, file, **options))
    assert (job["status"], job["failed"]) == ("complete", 0)
    return job


def undo(api: Client, job: Any) -> Any:
    """Undo an import and return it."""
    api.post(f"/imports/{job['id']}/undo").expect(200)
    return api.wait(f"/imports/{job['id']}", lambda row: row["phase"] == "undone")


def consent_of(api: Client, address: str) -> tuple[bool, str | None]:
    """Return whether an address is subscribed, and who opted it out."""
    [contact] = api.get("/contacts", search=address).expect(200)
    [channel] = [channel for channel in contact["channels"] if channel["value"] == address]
    return channel["subscribed"], channel["opted_out_by"]


def record_of(api: Client, address: str) -> list[tuple[str, str, str]]:
    """Return (act, by, source) of the evidence about the contact with an address, newest first."""
    [contact] = api.get("/contacts", search=address).expect(200)
    rows = api.get(f"/contacts/{contact['id']}/consents").expect(200)
    return [(row["act"], row["by"], row["source"]) for row in rows]


@pytest.mark.parametrize(
    ("header", "no"), [("Newsletter", "non"), ("subscribed_email", "false"), ("Status", "no"), ("Status", "nein")]
)
def test_a_no_is_an_opt_out_that_later_imports_keep(api: Client, header: str, no: str) -> None:
    """A no is on record; a file that says nothing, or neither yes nor no, does not lift it, and a yes does."""
    address = f"{header}.{no}@refused.example".lower()
    job = run_import(api, f"email,{header}\n{address},{no}\n", consent_source="the old shop")
    assert (job["arriving"]["unsubscribed"], job["arriving"]["reasons"]) == (1, {"file": 1})
    assert consent_of(api, address) == OPTED_OUT
    assert record_of(api, address) == [("opt_out", "operator", "import")]

    later = run_import(api, f"email\n{address}\n")
    assert (consent_of(api, address), later["arriving"]["reasons"]) == (OPTED_OUT, {"before": 1})
    assert [row["kept_opt_out"] for row in import_results(api, later["id"])] == [address]
    run_import(api, f"email,newsletter\n{address},\n")
    run_import(api, f"email,newsletter\n{address},vielleicht\n")
    assert consent_of(api, address) == OPTED_OUT

    run_import(api, f"email,newsletter\n{address},yes\n", opt_in=False)
    assert consent_of(api, address) == OPTED_OUT
    run_import(api, f"email,newsletter\n{address},yes\n")
    assert consent_of(api, address) == SUBSCRIBED
    assert record_of(api, address)[0] == ("opt_in", "operator", "import")


def test_a_no_is_kept_within_a_file_and_after_a_deletion(api: Client) -> None:
    """A further row without a yes keeps the no of an earlier row, and so does the hash of a deleted contact."""
    address = "twice@refused.example"
    for dry_run in (True, False):
        job = wait_for_import(api, upload(api, f"email,newsletter\n{address},no\n{address},\n", dry_run=dry_run))
        assert job["arriving"]["reasons"] == {"file": 1}
    # A later yes in the same file does not lift a recipient's opt-out, which is not from before the import.
    left = "left-and-back@refused.example"
    for dry_run in (True, False):
        file = f"email,status\n{left},unsubscribed\n{left},subscribed\n"
        assert wait_for_import(api, upload(api, file, dry_run=dry_run))["arriving"]["reasons"] == {"file": 1}
    assert run_import(api, f"email\n{left}\n")["arriving"]["reasons"] == {"before": 1}
    [contact] = api.get("/contacts", search=address).json
    api.delete(f"/contacts/{contact['id']}").expect(200)
    run_import(api, f"email\n{address}\n")
    assert consent_of(api, address) == OPTED_OUT


def test_users_and_files_replace_a_no(api: Client) -> None:
    """An opt-in by a user ends the no of a file, and the opt-out of a user still follows the option of an import."""
    address = "changed@refused.example"
    run_import(api, f"email,newsletter\n{address},no\n")
    api.post("/contacts", {"email": address, "opt_in": True}).expect(200)
    assert consent_of(api, address) == SUBSCRIBED
    api.post("/contacts", {"email": address, "opt_in": False}).expect(200)
    run_import(api, f"email\n{address}\n")
    assert consent_of(api, address) == SUBSCRIBED


def test_a_no_to_email_is_no_opt_out_from_sms(api: Client) -> None:
    """The phone number of a row is not subscribed, but only a column about SMS is a no to SMS."""
    file = "email,phone,newsletter,sms opt in\nmail@refused.example,+14155553101,no,\n"
    run_import(api, file + "sms@refused.example,+14155553102,yes,no\n,+14155553103,no,\n")
    assert consent_of(api, "mail@refused.example") == OPTED_OUT
    assert [consent_of(api, f"+1415555310{number}") for number in (1, 2, 3)] == [
        NOT_SUBSCRIBED, OPTED_OUT, NOT_SUBSCRIBED,
    ]  # fmt: skip
    assert consent_of(api, "sms@refused.example") == SUBSCRIBED


def test_contacts_that_only_are_not_subscribed_get_no_opt_out(api: Client) -> None:
    """A status such as pending is not a no: the contact is not subscribed, and counted so."""
    job = run_import(api, "email,status\npending@refused.example,pending\n")
    assert consent_of(api, "pending@refused.example") == NOT_SUBSCRIBED
    assert job["arriving"]["reasons"] == {"inactive": 1}
    run_import(api, "email\npending@refused.example\n")
    assert consent_of(api, "pending@refused.example") == SUBSCRIBED


def test_an_undo_takes_back_a_no(api: Client) -> None:
    """The contact is as before the import, its evidence says so, and the no counts no more."""
    address = "undone@refused.example"
    api.post("/contacts", {"email": address, "opt_in": False}).expect(201)
    job = run_import(api, f"email,newsletter\n{address},no\n")
    assert consent_of(api, address) == OPTED_OUT
    undo(api, job)
    assert consent_of(api, address) == NOT_SUBSCRIBED
    assert record_of(api, address) == [("import_undone", "operator", "import"), ("opt_out", "operator", "import")]
    run_import(api, f"email\n{address}\n")
    assert consent_of(api, address) == SUBSCRIBED


def test_an_undo_of_one_no_keeps_that_of_another_import(api: Client) -> None:
    """A no that two files say is in force until both imports are undone."""
    address = "both@refused.example"
    api.post("/contacts", {"email": address, "opt_in": False}).expect(201)
    run_import(api, f"email,newsletter\n{address},no\n")
    undo(api, run_import(api, f"email,newsletter\n{address},no\n"))
    run_import(api, f"email\n{address}\n")
    assert consent_of(api, address) == OPTED_OUT


def test_an_undo_of_an_opt_in_is_on_record(api: Client) -> None:
    """After the undo of an import that subscribed a contact, the newest evidence is the undo, by who asked for it."""
    address = "optin@refused.example"
    api.post("/contacts", {"email": address, "opt_in": False}).expect(201)
    job = run_import(api, f"email,phone\n{address},+14155553111\n")
    undo(api, job)
    assert consent_of(api, address) == NOT_SUBSCRIBED
    [contact] = api.get("/contacts", search=address).json
    rows = api.get(f"/contacts/{contact['id']}/consents").json
    assert {(row["kind"], row["act"]) for row in rows[:2]} == {("email", "import_undone"), ("phone", "import_undone")}
    assert all(row["actor"].startswith("key:") and row["data"]["import_id"] == job["id"] for row in rows[:2])
