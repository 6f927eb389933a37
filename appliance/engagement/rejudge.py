"""Judges all hits again by today's rules: what is learned about machines later corrects what was counted before."""

from appliance.db import work
from appliance.db.open import rows
from appliance.db.work import writing
from appliance.engagement import bot_detection, corrections
from appliance.messages.link_targets import Targets, Wanted

# Messages in one transaction, and hits of one that are looked at, the latest first
_AT_ONCE, _MOST = 50, 1_000
_HITS = (
    "SELECT id, message_id, at, kind, number, method, ip, user_agent, verdict, reason, event_id FROM "
    "(SELECT * FROM hit WHERE message_id = ? AND verdict IS NOT NULL ORDER BY at DESC, id DESC LIMIT ?) ORDER BY at, id"
)


def judge_all(since: int = 0) -> tuple[int, int]:
    """Judge the hits of all messages that were asked for since a moment; returns how many messages, and changed hits.

    What was counted for nobody in particular stays as it was judged: nothing is kept by which it could be judged again.
    """
    targets = Targets()
    looked = changed = last = 0
    while True:
        ids = [
            row[0]
            for row in rows(
                "SELECT DISTINCT message_id FROM hit WHERE message_id > ? AND at >= ? ORDER BY message_id LIMIT ?",
                (last, since, _AT_ONCE),
            )
        ]
        if not ids:
            return looked, changed
        changed += work.write(_judge, targets, ids)
        looked, last = looked + len(ids), ids[-1]


def _judge(targets: Targets, ids: list[int]) -> int:
    writing()
    count = 0
    for wanted, found in targets.find(Wanted(number, None) for number in ids).items():
        known = [corrections.kept(row) for row in rows(_HITS, (wanted.message_id, _MOST))]
        verdicts = bot_detection.judge([hit.seen for hit in known], found.handed_over_at, found.links)
        changes = corrections.changes(zip(known, verdicts, strict=True))
        if changes:
            corrections.correct(found, changes)
            count += len(changes)
    return count
