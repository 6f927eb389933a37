"""Tables of templates and their revisions, brands, media, domains, forms and imports; of flows and campaigns."""

from typing import Any

from peewee import (
    SQL,
    BlobField,
    BooleanField,
    CompositeKey,
    DeferredForeignKey,
    FloatField,
    ForeignKeyField,
    IntegerField,
    TextField,
)

from appliance.storage.database import Json, Records, Table, Time
from appliance.storage.models.account import Account, Contact, ContactList, Segment, User

EMPTY_DESIGN: dict[str, Any] = {"sections": [], "theme": {}}


class Template(Table):
    """The editable subject, body and design of a message; a campaign or a step of a flow has its own template."""

    account = ForeignKeyField(Account, index=False)
    name = TextField(null=True)
    flow = DeferredForeignKey("Flow", null=True, on_delete="CASCADE", index=True)
    action_id = IntegerField(null=True)  # id of the step that sends it
    channel = TextField(default="email")  # the channel of its campaign or step
    removed_at = Time(null=True)  # when its step was removed; runs of earlier versions still send the template
    subject = TextField(null=True)
    body = TextField(null=True)
    preheader = TextField(null=True)
    from_name = TextField(null=True)
    from_email = TextField(null=True)
    reply_to = TextField(null=True)
    design = Json(default=lambda: dict(EMPTY_DESIGN))
    # Texts in other languages: {language tag: {text id: {"source": translated text, "text": translation}}}
    translations = Json(default=dict)
    variables = Json(default=dict)
    revision = IntegerField(default=1)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False),)


class TemplateRevision(Table):
    """A saved state of a template; a campaign sends the revision that was current when it was sent."""

    template = ForeignKeyField(Template, on_delete="CASCADE", index=False)
    number = IntegerField()
    parent_number = IntegerField(null=True)  # the revision that was edited; null for the first, and for undo and redo
    restored_number = IntegerField(null=True)  # the revision that undo or redo restored
    named = BooleanField(default=False)  # a person or a send named the revision, so it is never pruned
    label = TextField(null=True)
    edited_field = TextField(null=True)  # the field of the template or of a section, if only one was changed
    user = ForeignKeyField(User, null=True, on_delete="SET NULL", index=False)
    created_at = Time()
    # The document is the last column, so that SQLite reads the other columns without it.
    document = Json()

    class Meta:
        indexes = ((("template", "number"), True),)


class Brand(Table):
    """The brand of an account: colours, fonts, logo, tone of voice, company and postal address."""

    account = ForeignKeyField(Account, unique=True)
    brand_color = TextField(null=True)
    text_color = TextField(null=True)
    bg_color = TextField(null=True)
    font_heading = TextField(null=True)
    font_body = TextField(null=True)
    style_notes = TextField(null=True)
    tone = TextField(null=True)
    company_description = TextField(null=True)
    industry = TextField(null=True)
    example_copy = Json(null=True)
    default_header = Json(default=dict)
    default_footer = Json(default=dict)
    default_theme = Json(default=dict)
    physical_address = TextField(null=True)
    company_name = TextField(null=True)
    links = Json(default=list)
    logo = TextField(null=True)
    created_at = Time()
    updated_at = Time()


class Media(Table):
    """An uploaded image, served under an unguessable name."""

    account = ForeignKeyField(Account, index=True)
    signed_id = TextField(unique=True)
    filename = TextField()
    content_type = TextField()
    bytes = IntegerField()
    width = IntegerField(null=True)
    height = IntegerField(null=True)
    created_at = Time()
    content = BlobField()  # the last column, so that SQLite reads the other columns without it


class SendingDomain(Table):
    """A domain that mail may be sent from, with the result of its last DNS check."""

    account = ForeignKeyField(Account, index=False)
    name = TextField()
    provider = TextField(default="smtp")
    status = TextField(default="pending")
    ownership_token = TextField()
    dns_records = Json(null=True)  # the records that the last DNS check found
    attention = TextField(null=True)  # a warning for a person, although the domain still works
    attention_since = Time(null=True)
    failed_checks = IntegerField(default=0)  # the number of consecutive failed checks
    enabled = BooleanField(default=True)
    verified_at = Time(null=True)
    failed_at = Time(null=True)
    checked_at = Time(null=True)
    next_check_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "name"), True), (("next_check_at",), False))


class DomainKey(Table):
    """A DKIM key of a sending domain; receivers still verify mail in transit with the public key of a retired key."""

    domain = ForeignKeyField(SendingDomain, on_delete="CASCADE", index=False)
    selector = TextField()
    algorithm = TextField()  # rsa, ed25519
    private_key = BlobField()  # PKCS 8, encrypted with the installation's key
    public_key = TextField()  # the value of `p=` in the DNS record
    state = TextField()  # next, active, retired
    created_at = Time()
    activated_at = Time(null=True)
    retired_at = Time(null=True)

    class Meta:
        indexes = ((("domain", "selector"), True),)


# Sign-up forms, and requests that the owner of an address must confirm:


class Form(Table):
    """A sign-up form, hosted or embedded."""

    account = ForeignKeyField(Account, index=False)
    name = TextField()
    language = TextField(null=True)  # a language tag; null for the language of each visitor's browser
    list_ids = Json(default=list)
    origins = Json(default=list)  # web origins whose pages may read the response (CORS)
    fields = Json(default=list)
    double_opt_in = BooleanField(default=True)
    redirect_url = TextField(null=True)
    consent_text = TextField(null=True)
    title = TextField(null=True)  # null: the name
    intro = TextField(null=True)
    button_text = TextField(null=True)
    thanks_title = TextField(null=True)
    thanks_text = TextField(null=True)
    topic_ids = Json(default=list)  # lists that visitors may choose from
    topics_required = BooleanField(default=False)
    public_key = TextField(unique=True)
    submissions_count = IntegerField(default=0)
    confirmed_count = IntegerField(default=0)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False),)


class Confirmation(Table):
    """A sign-up or erasure request that the owner of the address must confirm by email; kept for 30 days."""

    account = ForeignKeyField(Account, index=False)
    form = ForeignKeyField(Form, null=True, on_delete="SET NULL", index=True)
    purpose = TextField()  # opt_in, erase
    kind = TextField()
    value = TextField(null=True)  # the address as entered; null once it is erased
    key = TextField(null=True)  # the normal form of the address
    person = Json(default=dict)  # the other fields of the form; empty once the request is confirmed
    list_ids = Json(default=list)
    ip = TextField(null=True)
    user_agent = TextField(null=True)
    text = TextField(null=True)  # the consent text that the person agreed to
    message_id = IntegerField(null=True)  # the confirmation email
    mailed_at = Time(null=True)
    confirmed_at = Time(null=True)
    created_at = Time(index=True)

    class Meta:
        indexes = ((("kind", "key"), False),)


Confirmation.add_index(SQL("CREATE INDEX confirmation_message ON confirmation (message_id) WHERE message_id NOT NULL"))


# Imports of files:


class Import(Table):
    """An import of one file: its options, progress and counts of lines."""

    account = ForeignKeyField(Account, index=False)
    resource = TextField()  # contacts, suppressions
    status = TextField()  # pending, processing, complete, failed, cancelled
    phase = TextField(null=True)  # mapping, staging, applying, undoing, undone
    dry_run = BooleanField(default=False)
    filename = TextField()
    bytes = IntegerField()
    format = TextField()  # csv, jsonl
    product = TextField(null=True)  # the product that exported the file, if its columns show it
    columns = Json(default=list)  # the columns of the file, with samples and the field each is mapped to
    options = Json(default=dict)
    actor = TextField()
    total = IntegerField(default=0)
    processed = IntegerField(default=0)
    created = IntegerField(default=0)
    updated = IntegerField(default=0)
    skipped = IntegerField(default=0)
    failed = IntegerField(default=0)
    warnings = IntegerField(default=0)  # lines with a value that was left out
    arriving = Json(default=dict)  # the number of contacts by `Outcome.state`
    left_in_place = Json(default=dict)  # the number of contacts that the undo left in place, by reason
    restored = IntegerField(default=0)  # the number of contacts that the undo removed or restored
    # Those of them that it removed; for suppressions, the addresses that are no longer suppressed
    removed = IntegerField(default=0)
    error = TextField(null=True)
    cursor = Json(default=list)  # kind and key of the last applied address
    cancel_asked_at = Time(null=True)
    undo_until = Time(null=True)
    undone_at = Time(null=True)
    completed_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False), (("status",), False))


class Erasure(Table):
    """An erased person whose data may still be in the undo data of imports; deleted once no import has such data."""

    account = ForeignKeyField(Account, index=False)
    contact_id = IntegerField()
    addresses = Json()  # a list of [kind, key, value]
    created_at = Time()


class ImportChunk(Table):
    """The part of an import that one transaction applied: the outcome of each line, and the old values for undo."""

    import_job = ForeignKeyField(Import, on_delete="CASCADE", index=False)
    number = IntegerField()
    outcomes = BlobField()
    before = BlobField(null=True)  # null once the import can no longer be undone
    created_at = Time()

    class Meta:
        indexes = ((("import_job", "number"), True),)


BRANDS: Records[Brand] = Records(Brand)


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
    entry_places = Json(null=True)  # the taken places of the limit of entries an hour (`flows/entry_caps.py`)
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
    outcome = TextField(null=True)  # null while the run waits in the step; later on, yes, no, skipped or exited
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


# The replays that are to be run, and those that end the time for which they are kept.
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


class Campaign(Table):
    """One message to an audience, sent once."""

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
    edited_by = IntegerField(null=True)  # the user who last changed content or audience
    data = Json(default=dict)
    tracking = BooleanField(default=True)  # whether its opens and clicks are counted
    scheduled_at = Time(null=True)  # with `local_time`, the first moment at which it is that time anywhere
    local_time = TextField(null=True)  # `2026-12-01T09:00`: the time on each recipient's clock at which it is sent
    utm = Json(null=True)  # the UTM parameters of its links; null: those of the account
    # Audience, content and sender are fixed when the campaign is sent.
    content = ForeignKeyField(TemplateRevision, null=True, index=False)
    sender = Json(null=True)
    pinned = Json(null=True)  # the shared content besides the template revision, fixed when the campaign is sent
    hold_until = Time(null=True)
    test = BooleanField(default=False)  # it was sent with a test key: its messages are captured and never counted
    audience_count = IntegerField(default=0)
    pending_snapshot = Json(
        null=True
    )  # the audience and progress of a large campaign while its message rows are being written
    pending_end = TextField(null=True)  # `cancel` or `undo` while a job ends the messages of a large campaign
    sent_count = IntegerField(default=0)
    # Counts for the auto-pause: unknown addresses rejected, bounces after acceptance, spam complaints.
    refused_count = IntegerField(default=0)
    bounced_count = IntegerField(default=0)
    complained_count = IntegerField(default=0)
    baseline = Json(default=dict)  # the counts at the time when a person last resumed the campaign
    pause_reason = TextField(null=True)
    started_at = Time(null=True)
    completed_at = Time(null=True)
    cancelled_at = Time(null=True)
    deleted_at = Time(null=True)  # a deleted campaign is hidden, but its row stays, because the ledger refers to it
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False), (("phase", "scheduled_at"), False))


Campaign.add_index(
    SQL("CREATE INDEX campaign_unfinished ON campaign (id) WHERE pending_snapshot NOT NULL OR pending_end NOT NULL")
)


class SendTime(Table):
    """When the recipients of a campaign in one time zone get it, fixed when the campaign is sent.

    Each campaign with a local time has a row for every zone that exists.
    """

    campaign = ForeignKeyField(Campaign, on_delete="CASCADE", index=False)
    time_zone = TextField()
    due_at = Time()
    next_due_at = Time(null=True)  # for recipients who waited for the winner of an A/B test
    recipients = IntegerField(default=0)

    class Meta:
        indexes = ((("campaign", "time_zone"), True),)


class Series(Table):
    """The repetition of a campaign, which stays scheduled; what is sent at each date is a copy of it."""

    campaign = ForeignKeyField(Campaign, unique=True, on_delete="CASCADE")
    rule = Json(null=True)  # `campaigns.repeat_dates.RepeatRule`; null: it repeats no longer, and its dates stay
    ends_at = Time(null=True)
    only_if_changed = BooleanField(default=False)
    sent_hash = TextField(null=True)  # of the content that was sent last
    created_at = Time()
    updated_at = Time()


class Occurrence(Table):
    """A date of a series that is over: what was sent then, or why nothing was."""

    series = ForeignKeyField(Series, on_delete="CASCADE", index=False)
    due_at = Time()
    outcome = TextField()  # sent, missed (too late), unchanged (the content), blocked (by the preflight)
    reason = TextField(null=True)  # the code of the finding
    campaign = ForeignKeyField(Campaign, null=True, unique=True, on_delete="CASCADE")  # what was sent
    created_at = Time()

    class Meta:
        indexes = ((("series", "due_at"), True),)


class Experiment(Table):
    """The A/B test or the holdout of a campaign: what is compared, who got what, and the decision."""

    campaign = ForeignKeyField(Campaign, unique=True, on_delete="CASCADE")
    metric = TextField(default="clicks")  # clicks, opens, event
    event = TextField(null=True)  # the name of the event that is counted, by which a holdout is always measured
    by_amount = BooleanField(default=False)  # whether the amounts of the events are compared, not who had one
    test_share = FloatField(default=1.0)  # the share of the audience that the test gets; the rest waits for the winner
    holdout = FloatField(default=0.0)  # the share of the audience that gets nothing and is measured
    uneven = BooleanField(default=False)  # whether later batches of the test give better variants more recipients
    decide_after_minutes = IntegerField(default=1440)  # from the first message to the end of the test
    decided_by = TextField(default="service")  # service, person
    too_close = TextField(default="leader")  # what the service does at the end without a winner: leader, person
    state = TextField(default="draft")  # draft, testing, releasing (the winner to those who wait), decided
    # Fixed or counted when the campaign is sent:
    assignment = Json(null=True)  # `experiments.assignment.Assignment`; only ever extended
    typical_amount = Json(null=True)  # `experiments.evidence.TypicalAmount`
    # The batches of the test: {"at": when its first message was due, "sizes": the recipients of each variant}
    batches = Json(default=list)
    held_out_count = IntegerField(default=0)
    decide_at = Time(null=True)  # when the test ends
    next_batch_at = Time(null=True)  # when the next batch of an uneven test is assigned
    released_id = IntegerField(default=0)  # waiting messages up to this id were looked at for the current batch
    winner = IntegerField(null=True)  # number of the variant that those who wait get
    chosen_by = TextField(null=True)  # who chose it: service, or the actor as in the audit log
    decision = Json(null=True)  # `experiments.decision.Decision` at that time
    decided_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("state", "decide_at"), False),)


class Variant(Table):
    """A variant of a campaign. Texts that its template does not have are those of the campaign's template."""

    experiment = ForeignKeyField(Experiment, on_delete="CASCADE", index=False)
    number = IntegerField()  # from 1, as in the ledger; variant 1 is the campaign's own template
    name = TextField(null=True)
    template = ForeignKeyField(Template, on_delete="CASCADE", index=True)
    send_after_minutes = IntegerField(default=0)  # from the start of the campaign
    # Fixed when the campaign is sent; variant 1 has the content and the sender of the campaign.
    document = Json(null=True)  # its complete content, as in a revision
    sender = Json(null=True)

    class Meta:
        indexes = ((("experiment", "number"), True),)
