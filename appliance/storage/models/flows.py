"""Tables of flows: their triggers, steps, runs, requests, replays and tests, and the members of watched segments."""

from peewee import (
    SQL,
    BlobField,
    BooleanField,
    CompositeKey,
    FloatField,
    ForeignKeyField,
    IntegerField,
    TextField,
)

from appliance.storage.database import Json, Table, Time
from appliance.storage.models.account import Account, Contact, ContactList, Segment
from appliance.storage.models.content import Template, TemplateRevision

# The keys under which the stored steps of a flow have nested steps, in a step or in an item of its `branches`
# (`flows.branches`).
NESTED_STEP_KEYS = ("yes", "no", "else", "branches", "steps")


class Flow(Table):
    """An automation. A `hidden` flow belongs to a campaign and is never listed."""

    account = ForeignKeyField(Account, index=False)
    hidden = BooleanField(default=False)
    test = BooleanField(default=False)  # the flow was activated with a test key, so only test events start it
    status = TextField(default="draft")
    approval_state = TextField(default="pending_review")
    approval_note = TextField(null=True)
    asked_at = Time(null=True)  # when approval was requested; null: not pending
    asked_by = IntegerField(null=True)  # the user who requested approval
    edited_by = IntegerField(null=True)  # the user who last changed content or audience
    name = TextField()
    goal = TextField(null=True)
    steps = Json(default=list)  # the nested document as it is edited, each step with its `id` and `type`
    last_action = IntegerField(default=0)  # the highest step id so far; step ids are never reused
    version = IntegerField(default=0)  # the version that new runs follow; 0 if the flow was never live
    live_from = IntegerField(default=0)  # events up to this id were recorded before the flow was live, and start no run
    data = Json(default=dict)
    draft = Json(null=True)  # unpublished changes of a flow that is or was live
    sent_count = IntegerField(default=0)
    # Counts of all runs so far, without test runs. The number of live runs is entered - completed - exited.
    entered_count = IntegerField(default=0)
    completed_count = IntegerField(default=0)
    exited_count = IntegerField(default=0)
    paused_at = Time(null=True)
    pause_reason = TextField(null=True)  # why the service paused the flow; null: a user did, or it is not paused
    # While events of a pause are looked for: [due time, id] of the last waiting run that was checked.
    waits_checked = TextField(null=True)
    drop_before = Time(null=True)  # runs that were due before this time end, as chosen when the flow was resumed
    pending_end = TextField(null=True)  # why a job is ending its remaining runs and open messages
    deleted_at = Time(null=True)  # a deleted flow is hidden, but its row stays, because the ledger refers to it
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "hidden", "created_at", "id"), False),)


# The flows that every event is matched against, without the hidden flows of campaigns.
Flow.add_index(SQL("CREATE INDEX flow_live ON flow (id) WHERE status = 'active' AND hidden = 0"))
Flow.add_index(SQL("CREATE INDEX flow_with_goal ON flow (id) WHERE goal NOT NULL AND hidden = 0"))


class Trigger(Table):
    """The trigger of a flow or a campaign: an event and its conditions."""

    account = ForeignKeyField(Account, index=False)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=True)
    event = TextField(default="manual")
    segment = ForeignKeyField(Segment, null=True, index=True)
    contact_list = ForeignKeyField(ContactList, null=True, index=True)
    data = Json(default=dict)
    triggered_count = IntegerField(default=0)
    last_triggered_at = Time(null=True)
    held_since = Time(null=True)  # since when the present holdout group is measured; null: always
    entry_places = Json(null=True)  # when runs began or will begin, for the limit of entries an hour (`entry_caps.py`)
    scanned = Json(null=True)  # for `date_reached`: the day, and the last contact id checked on that day
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "event"), False),)


class Step(Table):
    """A step of a published version of a flow; a run follows the version that it began with."""

    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    version = IntegerField()
    action_id = IntegerField()  # the `id` of the step in the document, which is the same in all versions
    kind = TextField()
    template = ForeignKeyField(Template, null=True, on_delete="SET NULL", index=True)
    content = ForeignKeyField(TemplateRevision, null=True, index=False)  # the content of its message in this version
    pinned = Json(null=True)  # the shared content besides the template revision, as in `Campaign`
    data = Json(default=dict)
    next_action = IntegerField(null=True)
    branches = Json(default=dict)  # the `action_id` of the first step of each branch, by its key
    position = IntegerField()

    class Meta:
        indexes = ((("flow", "version", "action_id"), True),)


class Run(Table):
    """A run of a contact through a flow. An `ignored` run records why a trigger did not start a run (`exit_reason`)."""

    account = ForeignKeyField(Account, index=False)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    version = IntegerField()
    contact = ForeignKeyField(Contact, null=True, on_delete="SET NULL", index=False)
    event_id = IntegerField(null=True)  # the event that started the run; null for a manual enrollment
    event_data = Json(default=dict)  # a copy of that event for filters and merge tags, as the event may be deleted
    status = TextField(default="live")  # live, completed, exited, ignored
    exit_reason = TextField(null=True)
    action_id = IntegerField(null=True)  # the current step
    step_visit_id = IntegerField(null=True)  # the open visit of the current step, if the run waits there
    due_at = Time(null=True)
    chain_depth = IntegerField(default=0)
    test = BooleanField(default=False)
    ended_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        # The first index shows whether and when a contact was in a flow, without reading the ignored runs of that
        # contact, which may be very many.
        indexes = ((("contact", "flow", "status", "created_at", "test"), False), (("flow", "created_at", "id"), False))


# A contact has at most one live run in a flow; a test run does not prevent a real run.
Run.add_index(
    SQL("CREATE UNIQUE INDEX run_live ON run (flow_id, contact_id, test) WHERE status = 'live' AND contact_id NOT NULL")
)
Run.add_index(SQL("CREATE INDEX run_due ON run (flow_id, due_at, id) WHERE status = 'live'"))
# Runs are counted by status and reason from this index, without reading the rows.
Run.add_index(SQL("CREATE INDEX run_ended ON run (flow_id, status, exit_reason, test, created_at)"))


class StepVisit(Table):
    """A visit of a run to a step, from entering to leaving; the counts of a step are counts of its visits."""

    run = ForeignKeyField(Run, on_delete="CASCADE", index=True)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    action_id = IntegerField()
    test = BooleanField(default=False)
    entered_at = Time()
    left_at = Time(null=True)
    outcome = TextField(null=True)  # null while the run waits in the step; then `on`, `skipped`, `exited` or a branch
    reason = TextField(null=True)  # why the step was skipped or the run was ended

    class Meta:
        # All counts of a step are read from this index, in the order of `entered_at`.
        indexes = ((("flow", "action_id", "outcome", "reason", "test", "entered_at"), False),)


class FlowRequest(Table):
    """An HTTP request of a flow's step for one visit of a run, from the step until its result was used."""

    account = ForeignKeyField(Account, index=False)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    run = ForeignKeyField(Run, on_delete="CASCADE", index=False)
    version = IntegerField()  # the version of the flow whose step has the URL
    action_id = IntegerField()
    round = IntegerField(default=0)  # the number of earlier visits of the run to the step
    awaited = BooleanField(default=True)  # whether the run waits for the result
    body = TextField(null=True)  # null until the first attempt fills it in, and after the last
    status = TextField(default="pending")  # pending, succeeded, failed
    attempts = IntegerField(default=0)
    next_attempt_at = Time(null=True)
    deadline_at = Time()
    reason = TextField(null=True)  # why the last attempt failed
    answers = Json(null=True)  # the values of the response that the step stores
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("run", "action_id", "round"), True),)


FlowRequest.add_index(
    SQL("CREATE INDEX flow_request_due ON flow_request (flow_id, next_attempt_at, id) WHERE status = 'pending'")
)


class FlowReplay(Table):
    """The last replay of a flow: its draft and its live version against the events of the past (`flows/replays.py`)."""

    account = ForeignKeyField(Account, index=False)
    flow = ForeignKeyField(Flow, unique=True, on_delete="CASCADE")
    state = TextField(default="waiting")  # waiting, running, complete, failed, cancelled
    days = IntegerField()
    until = Time()  # the end of the replayed time; its start is `days` before
    seed = IntegerField()
    order_event = TextField(null=True)  # the event that counts as an order; null: each event with an amount
    sms_price = FloatField(null=True)  # of one part
    steps = Json(null=True)  # the steps to try, as they were at the start; null: those that are live
    trigger = Json()
    goal = TextField(null=True)
    live_version = IntegerField(null=True)  # null: the flow was never live
    requested_by = TextField()  # the actor, as in the audit log
    error = TextField(null=True)  # a code
    result = Json(null=True)
    people = BlobField(null=True)  # compressed: who got what, by ids of contacts and steps
    started_at = Time(null=True)
    ended_at = Time(null=True)
    created_at = Time()

    class Meta:
        indexes = ((("account", "state"), False),)


# The replays that wait or run, and those that have ended, which are deleted after some time.
FlowReplay.add_index(SQL("CREATE INDEX flow_replay_open ON flow_replay (id) WHERE state IN ('waiting', 'running')"))
FlowReplay.add_index(SQL("CREATE INDEX flow_replay_ended ON flow_replay (ended_at) WHERE ended_at NOT NULL"))


class SplitTest(Table):
    """The test of a random split in a live flow: since when its branches are compared, and which one has won."""

    account = ForeignKeyField(Account, index=False)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    action_id = IntegerField()
    terms = Json()  # what is compared, by `flows.split_tests`; other terms begin another test
    state = TextField(default="testing")  # testing, decided
    started_at = Time()
    # Of a test with uneven shares: the weights of each batch after the first, and the last visit before it.
    batches = Json(default=list, constraints=[SQL("DEFAULT '[]'")])
    typical_amount = Json()  # `experiments.evidence.TypicalAmount`, from before the test
    winner = TextField(null=True)  # the key of the branch that all take who come to the step
    chosen_by = TextField(null=True)  # who chose it: service, or the actor as in the audit log
    decision = Json(null=True)  # `experiments.decision.Decision` at that time
    decided_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("flow", "action_id"), True), (("state",), False))


class Cursor(Table):
    """The id of the last event that a reader of the event log has processed; `name` is `flows` or `webhooks`."""

    name = TextField(unique=True)
    event_id = IntegerField(default=0)


class SegmentWatch(Table):
    """A segment whose changes are recorded as events, because a flow or a webhook uses them."""

    account = ForeignKeyField(Account, index=False)
    segment = ForeignKeyField(Segment, unique=True, on_delete="CASCADE")
    definition = TextField(
        null=True
    )  # the definition of the segment whose members are stored; null while not all of them are stored
    created_at = Time()


class SegmentMember(Table):
    """A contact that is in a watched segment, according to the last `segment_enter` or `segment_exit` event."""

    id = None
    segment = ForeignKeyField(Segment, on_delete="CASCADE", index=False)
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=True)

    class Meta:
        primary_key = CompositeKey("segment", "contact")
        without_rowid = True
