"""Steps that name their `type`: what a request says, what is refused, and that a response can be sent back."""

from typing import Any

import pytest

from tests.api.test_flow_steps import PAID, create_steps, step_errors
from tests.kit.client import Client
from tests.kit.server import EMAIL

WAITS: list[dict[str, Any]] = [
    {"type": "wait_until", "until": "time", "at": "07:30", "weekdays": ["mon", "fri"], "time_zone": "account"},
    {"type": "wait_until", "until": "date", "path": "data.renewal", "offset_days": -3, "at": "09:00",
     "time_zone": "contact", "yes": [{"type": "exit"}]},
    {"type": "wait_until", "until": "event", "event_name": "email_clicked", "filters": PAID, "timeout": 3600,
     "no": [{"type": "exit"}]},
]  # fmt: skip


def shape(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return steps without ids, and without the keys that every step has."""
    return [
        {key: shape(value) if key in ("yes", "no", "else") else value for key, value in step.items()
         if key != "id" and (value not in ("", [], {}, 0, False) and value is not None)}
        for step in steps
    ]  # fmt: skip


@pytest.mark.parametrize("step", WAITS, ids=lambda step: step["until"])
def test_a_wait_until_round_trips(api: Client, step: dict[str, Any]) -> None:
    """The response has the keys of the request, and changes nothing when it is sent back."""
    flow = api.post("/flows", {"steps": [step]}).expect(201)
    assert shape(flow["steps"]) == [step]
    assert api.patch(f"/flows/{flow['id']}", {"steps": flow["steps"]}).expect(200)["steps"] == flow["steps"]


def test_the_least_that_a_wait_until_needs(api: Client) -> None:
    """`at` and `time_zone` have defaults."""
    (step,) = create_steps(api, {"type": "wait_until", "until": "time"})
    assert (step["at"], step["time_zone"], "weekdays" in step) == ("09:00", "contact", False)


def test_errors_of_a_wait_until(api: Client) -> None:
    """Every wrong value has its error, keys of another kind of wait are refused, and an hour has no branches."""
    wait = {"type": "wait_until"}
    assert step_errors(
        api, wait, {**wait, "until": "tomorrow"}, {**wait, "until": "event"}, {**wait, "until": "date"},
        {**wait, "until": "time", "at": "25:00", "weekdays": ["monday", "tue"], "time_zone": "mine", "timeout": 60,
         "yes": [{"type": "exit"}]},
        {**wait, "until": "date", "path": "data..x", "offset_days": 9999, "at": 9},
        {**wait, "until": "event", "event_name": "No Name", "timeout": 59, "filters": [{"name": "nothing"}]},
    ) == {
        "steps[0].until": ["can't be blank"],
        "steps[1].until": ["is not included in the list"],
        "steps[2].event_name": ["can't be blank"],
        "steps[2].timeout": ["can't be blank"],
        "steps[3].path": ["can't be blank"],
        "steps[4].at": ["is invalid"],
        "steps[4].weekdays[0]": ["is not included in the list"],
        "steps[4].time_zone": ["is not included in the list"],
        "steps[4].timeout": ["is only allowed with another value of until"],
        "steps[4].yes": ["must be empty: this step has no branches"],
        "steps[5].path": ["is invalid"],
        "steps[5].offset_days": ["must be less than or equal to 3660"],
        "steps[5].at": ["is invalid"],
        "steps[6].event_name": ["is invalid"],
        "steps[6].timeout": ["must be greater than or equal to 60"],
        "steps[6].filters[0].name": ["is not included in the list"],
        "steps[6].filters[0].predicate": ["can't be blank"],
    }  # fmt: skip


def test_a_simulation_of_waits_says_when_where_and_why(api: Client) -> None:
    """The zone has its source, an assumed event ends its wait, and the branches are named."""
    steps = [WAITS[1] | {"yes": []}, WAITS[2] | {"event_name": "order_paid", "no": []}]
    flow = api.post("/flows", {"trigger": {"event": "cart_add"}, "steps": steps}).expect(201)
    simulation = api.post(f"/flows/{flow['id']}/simulate", {
        "contact": {"email": "gil@example.org", "data": {"renewal": "2027-03-29", "time_zone": "Europe/Paris"}},
        "start_at": "2027-03-25T12:00:00Z", "events": [{"event": "order_paid", "data": {"total": 2}, "after": 72_300},
                                                      {"event": "order_paid", "data": {"total": 50}, "after": 72_400}],
    }).expect(200)  # fmt: skip
    entries = [entry for entry in simulation["timeline"] if entry["kind"] == "step"]
    assert [(entry["outcome"], entry["branch"], entry["until"]) for entry in entries] == [
        ("waits", None, "2027-03-26T08:00:00.000Z"), ("yes", "Date reached", None),
        ("waits", None, "2027-03-26T09:00:00.000Z"), ("yes", "Happened", None),
    ], simulation["text"]  # fmt: skip
    assert entries[0]["data"] == {"time_zone": "Europe/Paris", "time_zone_source": "data"}
    assert entries[3]["at"] == "2027-03-26T08:06:40.000Z" and entries[2]["checked_events"] == ["order_paid"]
    late = api.post(f"/flows/{flow['id']}/simulate", {"contact": {"data": {}}}).expect(200)
    assert [entry["reason"] for entry in late["timeline"] if entry["outcome"] == "no"] == ["no_date", "timed_out"]


def test_a_tag_is_added_and_removed_beside_the_others(api: Client) -> None:
    """Spaces around a tag do not count, case does not matter, and other tags stay; a simulation shows it."""
    steps = [{"type": "tag_add", "tag": " VIP "}, {"type": "tag_remove", "tag": "LEAD"}]
    filters = [{"name": "contact_tag", "predicate": "eq", "value": tag} for tag in ("vip", "friend")]
    lead = {"name": "contact_tag", "predicate": "eq", "value": "lead"}
    steps += [{"filters": filters, "yes": [{"filters": [lead], "yes": [{"type": "exit"}]}]}]
    flow = api.post("/flows", {"trigger": {"event": "cart_add"}, "steps": steps}).expect(201)
    assert [step.get("tag") for step in flow["steps"]] == ["VIP", "LEAD", None]
    contact = {"email": "gil@example.org", "data": {"tags": ["lead", "friend"]}}
    simulation = api.post(f"/flows/{flow['id']}/simulate", {"contact": contact}).expect(200)
    outcomes = [entry["outcome"] for entry in simulation["timeline"] if entry["kind"] == "step"]
    assert (outcomes, simulation["end"]["status"]) == (["on", "on", "yes", "no"], "completed"), simulation["text"]
    assert "Add the tag “VIP”" in simulation["text"]


def test_errors_of_a_tag(api: Client) -> None:
    """It must be a text of 1 to 64 characters."""
    tags = [{"type": "tag_add", "tag": tag} for tag in (None, "  ", "x" * 65, 7)]
    assert step_errors(api, *tags) == {
        "steps[0].tag": ["can't be blank"], "steps[1].tag": ["can't be blank"],
        "steps[2].tag": ["is too long (maximum is 64 characters)"], "steps[3].tag": ["is invalid"],
    }  # fmt: skip


VALUES: dict[str, Any] = {
    "type": "split_value", "field": "data.plan",
    "branches": [{"values": ["Gold", "platinum"], "steps": [{"type": "tag_add", "tag": "vip"}]},
                 {"values": [3, True], "steps": []}],
    "else": [{"type": "exit"}],
}  # fmt: skip


def test_a_split_by_value_round_trips(api: Client) -> None:
    """Branches get keys that stay; a new branch gets a new one, and removing a branch keeps the others."""
    flow = api.post("/flows", {"trigger": {"event": "cart_add"}, "steps": [VALUES]}).expect(201)
    (step,) = flow["steps"]
    first, second = step["branches"]
    assert [first["values"], second["values"]] == [["Gold", "platinum"], ["3", "true"]]
    assert first["steps"][0]["tag"] == "vip" and step["else"][0]["type"] == "exit" and step["yes"] == step["no"] == []
    assert api.patch(f"/flows/{flow['id']}", {"steps": flow["steps"]}).expect(200)["steps"] == flow["steps"]
    changed = {**step, "branches": [second, {"values": ["new"]}]}
    (after,) = api.patch(f"/flows/{flow['id']}", {"steps": [changed]}).expect(200)["steps"]
    keys = [branch["key"] for branch in after["branches"]]
    assert keys[0] == second["key"] and keys[1] not in (first["key"], second["key"]), keys


def test_a_simulation_of_a_split_by_value(api: Client) -> None:
    """Case does not matter, a number matches its text, and everyone else takes `else`; a removed key is refused."""
    flow = api.post("/flows", {"trigger": {"event": "cart_add"}, "steps": [VALUES]}).expect(201)
    keys = [branch["key"] for branch in flow["steps"][0]["branches"]]
    for value, key, label in (("GOLD", keys[0], "Gold, platinum"), (3, keys[1], "3, true"), ("3", keys[1], "3, true"),
                              (True, keys[1], "3, true"), ("lead", "else", "Everyone else"),
                              (None, "else", "Everyone else")):  # fmt: skip
        contact = {"email": "gil@example.org", "data": {} if value is None else {"plan": value}}
        simulation = api.post(f"/flows/{flow['id']}/simulate", {"contact": contact}).expect(200)
        entry = next(entry for entry in simulation["timeline"] if entry["type"] == "split_value")
        assert (entry["outcome"], entry["branch"], entry["data"]["value"]) == (key, label, value)
        assert f"Split by Plan: {label}" in simulation["text"]
    event = {**VALUES, "field": "event.size", "branches": [{"values": ["L"]}]}
    request = {"event": {"size": "l"}, "steps": [event]}
    simulation = api.post(f"/flows/{flow['id']}/simulate", request).expect(200)
    assert simulation["timeline"][1]["branch"] == "L"


def test_errors_of_a_split_by_value(api: Client) -> None:
    """Every wrong value has its error at its place, also in the steps of a branch."""
    split = {"type": "split_value"}
    assert step_errors(
        api, split, {**split, "field": "contact_list", "branches": [{"values": [" "]}, "no", {"values": [1, "1", {}]}]},
        {**split, "field": "data.plan", "branches": [{"key": 7, "values": ["x"], "size": 1, "steps": [{"type": "go"}]}],
         "yes": [{"type": "exit"}]},
        {**split, "field": "country", "branches": [{"values": ["DE"], "steps": [{"type": "tag_add"}]}],
         "else": [{"type": "tag_add"}]},
    ) == {
        "steps[0].field": ["can't be blank"],
        "steps[0].branches": ["must have between 1 and 20 items"],
        "steps[1].field": ["is not included in the list"],
        "steps[1].branches[0].values[0]": ["can't be blank"],
        "steps[1].branches[1]": ["is invalid"],
        "steps[1].branches[2].values[1]": ["has already been taken"],
        "steps[1].branches[2].values[2]": ["is invalid"],
        "steps[2]": ["is a step of type split_value, which has no yes"],
        "steps[2].branches[0].steps[0].type": ["is not included in the list"],
        "steps[3].branches[0].steps[0].tag": ["can't be blank"],
        "steps[3].else[0].tag": ["can't be blank"],
    }  # fmt: skip


def test_a_random_split_round_trips_and_is_simulated(api: Client) -> None:
    """Branches without a name have letters; the simulation says which branch chance chose."""
    split = {"type": "random_split", "branches": [{"name": "Short", "share": 30, "steps": [{"type": "exit"}]},
                                                  {"share": 70}]}  # fmt: skip
    flow = api.post("/flows", {"trigger": {"event": "cart_add"}, "steps": [split]}).expect(201)
    assert [(branch["name"], branch["share"]) for branch in flow["steps"][0]["branches"]] == [("Short", 30), ("", 70)]
    assert api.patch(f"/flows/{flow['id']}", {"steps": flow["steps"]}).expect(200)["steps"] == flow["steps"]
    simulation = api.post(f"/flows/{flow['id']}/simulate", {}).expect(200)
    assert simulation["timeline"][1]["branch"] in ("Short (30%)", "B (70%)")
    assert "Split at random: Short 30%, B 70%: " in simulation["text"]


def test_a_branch_with_the_whole_share_gets_everybody(api: Client) -> None:
    """A person ends a test by shares of 0 and 100; the branch without a share keeps its steps."""
    split = {"type": "random_split", "branches": [{"share": 0, "steps": [{"type": "exit"}]}, {"share": 100}]}
    flow = api.post("/flows", {"trigger": {"event": "cart_add"}, "steps": [split]}).expect(201)
    assert [branch["share"] for branch in flow["steps"][0]["branches"]] == [0, 100]
    simulation = api.post(f"/flows/{flow['id']}/simulate", {}).expect(200)
    assert simulation["timeline"][1]["branch"] == "B (100%)"


def test_errors_of_a_random_split(api: Client) -> None:
    """Two to five branches have shares that add up to 100."""
    split = {"type": "random_split"}
    half = {"share": 50}
    assert step_errors(
        api, split, {**split, "branches": [half, {"share": 40}]}, {**split, "branches": [half, {"share": -1}, {}]},
        {**split, "branches": [{**half, "name": "x" * 61}, {**half, "values": []}, {"share": 0.5, "name": 1}]},
        {**split, "branches": [half] * 6},
    ) == {
        "steps[0].branches": ["must have between 2 and 5 items"],
        "steps[1].branches": ["must have shares that add up to 100, not to 90"],
        "steps[2].branches[1].share": ["must be greater than or equal to 0"],
        "steps[2].branches[2].share": ["can't be blank"],
        "steps[3].branches[0].name": ["is too long (maximum is 60 characters)"],
        "steps[3].branches[1].values": ["is not a known field"],
        "steps[3].branches[2].share": ["is not a number"],
        "steps[3].branches[2].name": ["is invalid"],
        "steps[4].branches": ["must have between 2 and 5 items"],
    }  # fmt: skip


def test_a_go_to_names_an_id_as_sent(api: Client) -> None:
    """A new step can be named by the id that it is sent with; the simulation repeats the step that often."""
    steps = [{"id": 77, "duration": 3600}, {"subject": "Still there?", "body": "<p>Hi</p>"},
             {"type": "go_to", "step_id": 77, "max_jumps": 2}]  # fmt: skip
    flow = api.post("/flows", {"trigger": {"event": "cart_add"}, "steps": steps}).expect(201)
    assert (flow["steps"][2]["step_id"], flow["steps"][2]["max_jumps"]) == (flow["steps"][0]["id"], 2)
    assert api.patch(f"/flows/{flow['id']}", {"steps": flow["steps"]}).expect(200)["steps"] == flow["steps"]
    simulation = api.post(f"/flows/{flow['id']}/simulate", {}).expect(200)
    sent = [entry["at"] for entry in simulation["timeline"] if (entry["message"] or {}).get("status") == "sent"]
    assert len(sent) == 3 and len(set(sent)) == 3, simulation["text"]
    outcomes = [entry["outcome"] for entry in simulation["timeline"] if entry["type"] == "go_to"]
    assert outcomes == ["jumped", "jumped", "on"] and "Go to “Wait 1 hour”: Jumped" in simulation["text"]


def test_errors_of_a_go_to(api: Client) -> None:
    """It needs another step of the flow, a number of times, and a wait in each loop."""
    jump = {"type": "go_to"}
    invalid = [
        {**jump, "step_id": "1", "max_jumps": 101},
        *({**jump, "step_id": value} for value in (2.5, [1], {"a": 1})),
    ]
    assert step_errors(api, jump, *invalid) == {
        "steps[0].step_id": ["can't be blank"],
        "steps[1].step_id": ["is not a number"],
        "steps[1].max_jumps": ["must be less than or equal to 100"],
        "steps[2].step_id": ["is not a number"],
        "steps[3].step_id": ["is not a number"],
        "steps[4].step_id": ["is not a number"],
    }
    emit = {"id": 5, "event_name": "reminded"}
    assert step_errors(api, {**jump, "id": 6, "step_id": 6}, {**jump, "step_id": 99}, emit, {**jump, "step_id": 5}) == {
        "steps[0].step_id": ["must be the id of another step of the flow"],
        "steps[1].step_id": ["must be the id of another step of the flow"],
        "steps[3].step_id": [
            "leads into a loop without a wait: add a wait of at least a minute, or one for an event"
        ],
    }  # fmt: skip
    loop = [{"id": 5, "duration": 60}, {**jump, "step_id": 5}]
    flow = api.post("/flows", {"trigger": {"event": "cart_add"}, "steps": loop}).expect(201)
    api.post(f"/flows/{flow['id']}/activate").expect(200)


def test_a_colleague_is_notified_in_a_simulation_without_an_email(api: Client) -> None:
    """The simulation says who would be notified; nothing is queued."""
    steps = [{"type": "notify", "user_id": 1, "note": " Call them. "}]
    flow = api.post("/flows", {"trigger": {"event": "cart_add"}, "steps": steps}).expect(201)
    assert (flow["steps"][0]["user_id"], flow["steps"][0]["note"]) == (1, "Call them.")
    assert api.patch(f"/flows/{flow['id']}", {"steps": flow["steps"]}).expect(200)["steps"] == flow["steps"]
    simulation = api.post(f"/flows/{flow['id']}/simulate", {}).expect(200)
    assert simulation["timeline"][1]["data"] == {"to": EMAIL.partition("@")[0]} and "Notify " in simulation["text"]


def test_errors_of_a_notification(api: Client) -> None:
    """It needs a user of the account, and a note that is not too long."""
    notify = {"type": "notify"}
    assert step_errors(
        api, notify, {**notify, "user_id": 999, "note": "x" * 501}, {**notify, "user_id": "ana", "note": 1}
    ) == {
        "steps[0].user_id": ["can't be blank"],
        "steps[1].user_id": ["must exist"],
        "steps[1].note": ["is too long (maximum is 500 characters)"],
        "steps[2].user_id": ["is not a number"],
        "steps[2].note": ["is invalid"],
    }  # fmt: skip


TESTED = {"type": "random_split", "metric": "event", "event_name": "order_paid", "by_amount": True, "uneven": True,
          "decided_by": "person", "branches": [{"share": 50, "name": "Short"}, {"share": 50}]}  # fmt: skip


def test_a_person_chooses_the_winner_of_a_test(api: Client) -> None:
    """The report has the test; once a branch is chosen, all take it, also in simulations, until it is taken back."""
    flow = api.post("/flows", {"trigger": {"event": "split_seen"}, "steps": [TESTED], "status": "active"}).expect(201)
    (step,) = flow["steps"]
    keys = ("metric", "event_name", "by_amount", "uneven", "decided_by")
    assert {key: step[key] for key in keys} == {key: TESTED[key] for key in keys}
    assert api.patch(f"/flows/{flow['id']}", {"steps": flow["steps"]}).expect(200)["steps"] == flow["steps"]
    figures = api.get(f"/flows/{flow['id']}/report").expect(200)["steps"][0]
    test, sample = figures["test"], figures["sample_size"]
    assert (sample["variants"], sample["is_measured"], sample["days"]) == (2, False, None) and sample["needed"] > 10_000
    assert test["uneven"] and [row["share"] for row in test["variants"]] == [0.5, 0.5]
    assert (test["state"], test["winner"], test["decision"]) == ("testing", None, None)
    assert [(row["number"], row["name"], row["test_recipients"]) for row in test["variants"]] == [
        (1, "Short", 0), (2, "B", 0),
    ]  # fmt: skip
    key, path = step["branches"][1]["key"], f"/flows/{flow['id']}/winner"
    chosen = api.post(path, {"step": step["id"], "branch": key}).expect(200)
    assert (chosen["state"], chosen["winner"]) == ("decided", key) and chosen["chosen_by"].startswith("key:")
    for _ in range(3):
        entry = api.post(f"/flows/{flow['id']}/simulate", {}).expect(200)["timeline"][1]
        assert (entry["outcome"], entry["reason"]) == (key, "winner")
    assert api.post(path, {"step": step["id"], "branch": None}).expect(200)["state"] == "testing"
    assert api.post(path, {"step": step["id"], "branch": "b99"}).expect(422)["validation_errors"] == {
        "branch": ["must exist"]
    }
    assert "step" in api.post(path, {"step": 999, "branch": key}).expect(422)["validation_errors"]


def test_errors_of_a_test(api: Client) -> None:
    """Only a split with a metric has what belongs to a test, and only one by events an event."""
    split = {"type": "random_split", "branches": [{"share": 50}, {"share": 50}]}
    assert step_errors(
        api, {**split, "metric": "opens"}, {**split, "by_amount": True, "uneven": True, "decided_by": "person"},
        {**split, "metric": "event"}, {**split, "metric": "clicks", "event_name": "order_paid", "decided_by": "dice"},
    ) == {
        "steps[0].metric": ["is not included in the list"],
        "steps[1].by_amount": ["is only allowed with another value of metric"],
        "steps[1].uneven": ["is only allowed with another value of metric"],
        "steps[1].decided_by": ["is only allowed with another value of metric"],
        "steps[2].event_name": ["can't be blank"],
        "steps[3].event_name": ["is only allowed with another value of metric"],
        "steps[3].decided_by": ["is not included in the list"],
    }  # fmt: skip


def test_a_holdout_group_of_a_flow(api: Client) -> None:
    """Part of those who would enter is held out and listed; the report compares the groups."""
    trigger = {"event": "held_start", "data": {"holdout": 0.5, "holdout_event": "order_paid"}}
    flow = api.post("/flows", {"trigger": trigger, "steps": [{"duration": 60}], "status": "active"}).expect(201)
    assert flow["trigger"]["data"] == trigger["data"]
    contacts = [api.post("/contacts", {"email": f"held{index}@example.org"}).expect(201)["id"] for index in range(20)]
    enrolled = api.post(f"/flows/{flow['id']}/enroll", {"contact_ids": contacts}).expect(200)
    assert enrolled["enrolled"] + enrolled["held_out"] == 20 and 0 < enrolled["held_out"] < 20
    listed = api.get(f"/flows/{flow['id']}/runs", status="ignored", reason="held_out").expect(200)
    assert len(listed) == enrolled["held_out"]
    figures = api.get(f"/flows/{flow['id']}/report").expect(200)["holdout"]
    assert (figures["share"], figures["event"], figures["held_out"]) == (0.5, "order_paid", enrolled["held_out"])
    held = {"contact_id": listed[0]["contact_id"]}
    notes = api.post(f"/flows/{flow['id']}/simulate", held).expect(200)["notes"]
    assert "In reality, the contact would not enter: the contact is in the holdout group of this flow." in notes
    wrong = {"event": "x", "data": {"holdout": 0.6, "holdout_event": "No Name", "respect_control_group": "yes"}}
    assert api.post("/flows", {"trigger": wrong}).expect(422)["validation_errors"] == {
        "trigger.data.holdout": ["must be less than or equal to 0.5"],
        "trigger.data.holdout_event": ["is invalid"],
        "trigger.data.respect_control_group": ["is invalid"],
    }


def test_a_simulation_takes_the_chosen_branch_of_a_random_split(api: Client) -> None:
    """Each branch can be chosen, also in a test of the flow; another step or branch is refused."""
    split = {"type": "random_split", "branches": [
        {"share": 50, "steps": [{"type": "exit"}]}, {"share": 50, "steps": [{"duration": 60}]},
    ]}  # fmt: skip
    flow = api.post("/flows", {"trigger": {"event": "order_paid"}, "steps": [split, {"duration": 60}]}).expect(201)
    path, (stored, wait) = f"/flows/{flow['id']}", flow["steps"]
    keys = [branch["key"] for branch in stored["branches"]]
    for key, status in zip(keys, ("exited", "completed"), strict=True):
        choice = {"branches": {str(stored["id"]): key}}
        simulation = api.post(f"{path}/simulate", choice).expect(200)
        assert (simulation["timeline"][1]["outcome"], simulation["end"]["status"]) == (key, status)
        script = {"name": key, **choice, "expect": [{"end": status}]}
        changed = api.patch(path, {"data": {"scripts": [script]}}).expect(200)
        assert changed["scripts"][0]["passed"], changed["scripts"]
    wrong = {"branches": {str(wait["id"]): keys[0], str(stored["id"]): "b99"}}
    errors = api.post(f"{path}/simulate", wrong).expect(422)["validation_errors"]
    assert errors.keys() == {f"branches.{wait['id']}", f"branches.{stored['id']}"}
