"""Backups that were put in the place of what was there."""

from peewee import TextField

from appliance.tables.kinds import Json, Table, Time


class Restoration(Table):
    """One of them: what is older than `taken_at` may have gone out since, and only a person can say."""

    taken_at = Time()
    restored_at = Time()
    taken_by = TextField()  # versions of the program
    restored_by = TextField()
    replayed = Json(default=dict)
    paused = Json(default=list)  # flows that were live
