"""The table of the proposals of agents."""

from peewee import ForeignKeyField, IntegerField, TextField

from appliance.storage.database import Json, Table, Time
from appliance.storage.models.account import Account, ApiKey, User


class Proposal(Table):
    """An act that an agent proposes and a user approves or returns (`appliance/agents/proposals.py`)."""

    account = ForeignKeyField(Account, index=False)
    key = ForeignKeyField(ApiKey, index=True)  # the agent
    person = IntegerField(null=True)  # id of the user who created the key; counts as an author (docs/decisions.md#25)
    kind = TextField()  # send_campaign, start_flow, change_flow, change_segment, change_template
    subject_id = IntegerField()  # of the campaign, flow, segment or template
    subject_name = TextField()  # as it was when the proposal was made
    state = TextField(default="open")  # open, approved, returned, withdrawn
    note = TextField(default="")  # the agent's reason
    changes = Json(default=dict)  # the body of the request that is carried out on approval
    version = TextField()  # of all that the proposal describes, when it was made
    answer = TextField(null=True)  # the note of the user who returned it
    decided_by = ForeignKeyField(User, null=True, on_delete="SET NULL", index=True)
    decided_at = Time(null=True)
    mailed_at = Time(null=True)  # when users were told by email
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "state", "created_at"), False),)
