"""What is done with many people at once: the act, and the people in parts, as far as it has come."""

from peewee import SQL, BooleanField, ForeignKeyField, IntegerField, TextField

from appliance.tables.account import Account
from appliance.tables.kinds import Json, Table, Time


class CrowdAct(Table):
    """One act for many people, done in parts; kept for a day after its end, so that it can be undone."""

    account = ForeignKeyField(Account, index=True)
    user_id = IntegerField()
    act = TextField()  # list_add, list_remove, tag_add, tag_remove, unsubscribe, delete
    argument = Json(default=dict)  # what it needs: `contact_list_id`, `tag`
    evidence = Json(default=dict)  # how it came about, for consent rows
    state = TextField(default="working")  # working, done, failed
    number = IntegerField()  # how many people it is for
    changed = IntegerField(default=0)
    skipped = Json(default=dict)  # how many were left as they are, by reason
    undoes_id = IntegerField(null=True)  # the act that it takes back
    undone_id = IntegerField(null=True)  # the act that takes it back
    ended_at = Time(null=True)
    created_at = Time()
    updated_at = Time()


# Few are ever under way
CrowdAct.add_index(SQL("CREATE INDEX crowd_act_working ON crowd_act (id) WHERE state = 'working'"))


class CrowdPart(Table):
    """Some of the people of an act: whom it is for, and once it is done those who were changed."""

    act = ForeignKeyField(CrowdAct, on_delete="CASCADE", index=False)
    contact_ids = Json(default=list)
    done = BooleanField(default=False)

    class Meta:
        indexes = ((("act", "done"), False),)
