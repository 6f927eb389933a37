"""Post events to webhooks, signed, until the receivers accept the events or have failed too often.

`queue` creates deliveries from new events, records their outcomes and replays them, and `worker` posts the due ones.
All state is in the database: after a crash the next process repeats unfinished deliveries with the same `webhook-id`,
so that no event is lost and receivers can detect a repeated event.
"""
