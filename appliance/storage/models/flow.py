"""Flows, with their steps and runs, and campaigns, each of which has a hidden flow."""

from peewee import SQL, BooleanField, CompositeKey, ForeignKeyField, IntegerField, TextField

from appliance.storage.database import Json, Table, Time
from appliance.storage.models.account import Account, Contact, ContactList, Segment
from appliance.storage.models.content import Template, TemplateRevision


class Flow(Table):
    """An automation; `hidden` ones belong to a campaign and are never listed."""

    account = ForeignKeyField(Account, index=False)
    hidden = BooleanField(default=False)
    test = BooleanField(default=False)  # activated with a test key: only test events start it
    status = TextField(default="draft")
    approval_state = TextField(default="pending_review")
    approval_note = TextField(null=True)
    asked_at = Time(null=True)  # when approval was requested; null: not pending
    asked_by = IntegerField(null=True)  # the user who requested approval
    edited_by = IntegerField(null=True)  # the person who last changed content or audience
    name = TextField()
    goal = TextField(null=True)
    steps = Json(default=list)  # the nested document as it is edited, each step with its `id` and `type`
    last_action = IntegerField(default=0)  # the last step id; step ids are never reused
    version = IntegerField(default=0)  # the compiled version that new runs take; 0 if the flow was never live
    live_from = IntegerField(default=0)  # events up to this id happened before the flow went live, and start no run
    data = Json(default=dict)
    draft = Json(null=True)  # unpublished changes of a flow that is or was live
    sent_count = IntegerField(default=0)
    # All runs so far, without tests. The number of contacts inside is entered - completed - exited.
    entered_count = IntegerField(default=0)
    completed_count = IntegerField(default=0)
    exited_count = IntegerField(default=0)
    paused_at = Time(null=True)
    drop_before = Time(null=True)  # the flow was resumed without the steps that were due before this time
    pending_end = TextField(null=True)  # why its remaining runs and open messages are being ended
    deleted_at = Time(null=True)  # hidden from now on; the ledger still refers to it
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "hidden", "created_at", "id"), False),)


# Every event is matched against these flows; the hidden flows of campaigns are left out.
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
    scanned = Json(null=True)  # for `date_reached`: the day and the contact id up to which contacts were checked
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "event"), False),)


class Step(Table):
    """One row of a flow's compiled plan; runs keep the version they entered with."""

    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    version = IntegerField()
    action_id = IntegerField()  # stable over versions: the `id` of the step in the document
    kind = TextField()
    template = ForeignKeyField(Template, null=True, on_delete="SET NULL", index=True)
    content = ForeignKeyField(TemplateRevision, null=True, index=False)  # the content of its message in this version
    pinned = Json(null=True)  # shared content apart from the template, as for a campaign
    data = Json(default=dict)
    next_action = IntegerField(null=True)
    yes_action = IntegerField(null=True)
    no_action = IntegerField(null=True)
    position = IntegerField()

    class Meta:
        indexes = ((("flow", "version", "action_id"), True),)


class Run(Table):
    """A run of a contact through a flow; an `ignored` run is a trigger that started nothing, with the reason."""

    account = ForeignKeyField(Account, index=False)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    version = IntegerField()
    contact = ForeignKeyField(Contact, null=True, on_delete="SET NULL", index=False)
    event_id = IntegerField(null=True)  # the event that started it; null for a manual enrollment
    event_data = Json(default=dict)  # a copy for filters and merge tags, because the event itself may be deleted
    status = TextField(default="live")  # live, completed, exited, ignored
    exit_reason = TextField(null=True)
    action_id = IntegerField(null=True)  # the current step
    step_visit_id = IntegerField(null=True)  # the open visit of that step, if the run waits
    due_at = Time(null=True)
    chain_depth = IntegerField(default=0)
    test = BooleanField(default=False)
    ended_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        # The first index answers whether and when a contact was in a flow, even if the contact triggers it very often.
        indexes = ((("contact", "flow", "status", "created_at", "test"), False), (("flow", "created_at", "id"), False))


# One live run for each contact and flow; a test run does not prevent a real one.
Run.add_index(
    SQL("CREATE UNIQUE INDEX run_live ON run (flow_id, contact_id, test) WHERE status = 'live' AND contact_id NOT NULL")
)
Run.add_index(SQL("CREATE INDEX run_due ON run (flow_id, due_at, id) WHERE status = 'live'"))
# Counts of runs by outcome and reason, without reading the rows.
Run.add_index(SQL("CREATE INDEX run_ended ON run (flow_id, status, exit_reason, test, created_at)"))


class StepVisit(Table):
    """A visit of a run to a step, from entering to leaving; the counts of steps are summed from these rows."""

    run = ForeignKeyField(Run, on_delete="CASCADE", index=True)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    action_id = IntegerField()
    test = BooleanField(default=False)
    entered_at = Time()
    left_at = Time(null=True)
    outcome = TextField(null=True)  # null while the run waits there; else on, yes, no, skipped, exited
    reason = TextField(null=True)  # why the step was skipped or the run was ended

    class Meta:
        # Covers all counts of a step, in order of entering.
        indexes = ((("flow", "action_id", "outcome", "reason", "test", "entered_at"), False),)


class Cursor(Table):
    """The last event that a reader of the event log has processed (`flows`, `webhooks`)."""

    name = TextField(unique=True)
    event_id = IntegerField(default=0)


class SegmentWatch(Table):
    """A segment whose changes are recorded as events, because a flow or a webhook uses them."""

    account = ForeignKeyField(Account, index=False)
    segment = ForeignKeyField(Segment, unique=True, on_delete="CASCADE")
    definition = TextField(
        null=True
    )  # of the segment when its members were stored; null: not all of them are stored yet
    created_at = Time()


class SegmentMember(Table):
    """A contact in a watched segment, as recorded by the last event."""

    id = None
    segment = ForeignKeyField(Segment, on_delete="CASCADE", index=False)
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=True)

    class Meta:
        primary_key = CompositeKey("segment", "contact")
        without_rowid = True


class Campaign(Table):
    """A message that is sent once to many contacts."""

    account = ForeignKeyField(Account, index=False)
    flow = ForeignKeyField(Flow, unique=True)
    trigger = ForeignKeyField(Trigger, index=False)
    template = ForeignKeyField(Template, index=False)
    name = TextField()
    channel = TextField(default="email")
    status = TextField(default="draft")
    phase = TextField(default="draft")
    approval_state = TextField(default="pending_review")
    approval_note = TextField(null=True)
    asked_at = Time(null=True)  # when approval was requested; null: not pending
    asked_by = IntegerField(null=True)  # the user who requested approval
    edited_by = IntegerField(null=True)  # the person who last changed content or audience
    data = Json(default=dict)
    tracking = BooleanField(default=True)  # whether its opens and clicks are counted
    scheduled_at = Time(null=True)
    # Audience, content and sender are fixed when the campaign goes live.
    content = ForeignKeyField(TemplateRevision, null=True, index=False)
    sender = Json(null=True)
    pinned = Json(null=True)  # shared content apart from the template, fixed at sending
    hold_until = Time(null=True)
    test = BooleanField(default=False)  # sent with a test key: captured, never counted
    audience_count = IntegerField(default=0)
    pending_snapshot = Json(
        null=True
    )  # audience and progress of a large campaign whose message rows are still being written
    pending_end = TextField(null=True)  # cancel or undo, while messages of a large campaign are still being ended
    sent_count = IntegerField(default=0)
    # Counts for the auto-pause: unknown addresses rejected, bounces after acceptance, spam complaints.
    refused_count = IntegerField(default=0)
    bounced_count = IntegerField(default=0)
    complained_count = IntegerField(default=0)
    baseline = Json(default=dict)  # these counts when a person last resumed the campaign
    pause_reason = TextField(null=True)
    started_at = Time(null=True)
    completed_at = Time(null=True)
    cancelled_at = Time(null=True)
    deleted_at = Time(null=True)  # hidden from now on; the ledger still refers to it
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False), (("phase", "scheduled_at"), False))


Campaign.add_index(
    SQL("CREATE INDEX campaign_unfinished ON campaign (id) WHERE pending_snapshot NOT NULL OR pending_end NOT NULL")
)
