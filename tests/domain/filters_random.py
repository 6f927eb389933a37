"""Hypothesis strategies for random filters of every type."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from tests.domain.filters_people import EVENTS, KEYS, TAGS, WORDS
from tests.domain.filters_reference import BOOLEANS

word = st.sampled_from([text for text in WORDS if text])
FLAGS = st.tuples(st.sampled_from(["present", "blank"]), st.sampled_from([None, True, False]))
TEXTS = st.one_of(
    st.tuples(st.sampled_from(["eq", "not_eq", "cont", "not_cont", "start", "not_start", "end", "not_end"]), word),
    st.tuples(st.sampled_from(["in", "not_in"]), st.lists(word, min_size=1, max_size=4)),
    FLAGS,
)
numbers = st.sampled_from([0, 1, 1.0, 2, -1.5, 30])
scalars = st.one_of(word, numbers, st.booleans(), st.sampled_from(["30", "[]", "2026-01-05"]))
bounds = st.one_of(numbers, word)
parts = st.one_of(word, st.just("vip"))
JSONS = st.one_of(
    st.tuples(st.sampled_from(["eq", "not_eq"]), scalars),
    st.tuples(st.sampled_from(["cont", "not_cont", "start", "not_start", "end", "not_end"]), parts),
    st.tuples(st.sampled_from(["in", "not_in"]), st.lists(scalars, min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["gt", "gteq", "lt", "lteq"]), bounds),
    st.tuples(st.just("between"), st.one_of(st.lists(numbers, min_size=2, max_size=2),
                                            st.lists(word, min_size=2, max_size=2))),
    FLAGS,
    st.tuples(st.sampled_from(["true", "false"]), st.sampled_from([None, True, False])),
)  # fmt: skip
moments = st.integers(-3, 380).flatmap(
    lambda days: st.sampled_from([
        (datetime.now(UTC) - timedelta(days=days)).date().isoformat(),
        (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds"),
    ])
)  # fmt: skip
TIMES = st.one_of(
    st.tuples(st.sampled_from(["eq", "gt", "gteq", "lt", "lteq"]), moments),
    st.tuples(st.just("between"), st.lists(moments, min_size=2, max_size=2)),
    st.tuples(st.sampled_from(["within_days", "not_within_days"]), st.integers(1, 400)),
    FLAGS,
)
COUNTS = st.one_of(
    st.tuples(st.sampled_from(["eq", "not_eq", "gt", "gteq", "lt", "lteq"]), numbers),
    st.tuples(st.just("between"), st.lists(numbers, min_size=2, max_size=2)),
    st.tuples(st.sampled_from(["in", "not_in"]), st.lists(numbers, min_size=1, max_size=3)),
    FLAGS,
)
list_ids = st.integers(1, 3)
LISTS = st.one_of(
    st.tuples(st.sampled_from(["eq", "not_eq"]), list_ids),
    st.tuples(st.sampled_from(["in", "not_in"]), st.lists(list_ids, min_size=1, max_size=3)),
    FLAGS,
)
TRUTHS = st.one_of(
    st.tuples(st.sampled_from(["true", "false"]), st.sampled_from([None, True, False])),
    st.tuples(st.sampled_from(["eq", "not_eq"]), st.booleans()),
)
tags = st.sampled_from([tag for tag in TAGS if isinstance(tag, str)])
TAGGED = st.one_of(
    st.tuples(st.sampled_from(["eq", "not_eq", "cont", "not_cont"]), tags),
    st.tuples(st.sampled_from(["in", "not_in"]), st.lists(tags, min_size=1, max_size=3)),
    FLAGS,
)
emails = st.sampled_from(["p0.7@bücher.example", "P0.7@xn--bcher-kva.example", "P1.9@BÜCHER.example", "nobody"])
MAIL = st.one_of(
    st.tuples(st.sampled_from(["cont", "not_cont", "start", "end"]), st.sampled_from(["BÜCHER", "p0", ".example"])),
    FLAGS,
)
STATUS = st.tuples(st.sampled_from(["eq", "not_eq"]), st.sampled_from(["verified", "suppressed", "unverified"]))
REASON = st.one_of(st.tuples(st.sampled_from(["eq", "not_eq"]), st.sampled_from(["manual", "hard_bounce"])), FLAGS)
where = st.lists(
    st.builds(lambda pair: {"name": "event.total", "predicate": pair[0], "value": pair[1]},
              st.tuples(st.sampled_from(["eq", "not_eq"]), scalars)), max_size=2,
)  # fmt: skip
HISTORY = st.tuples(
    st.sampled_from(["performed", "not_performed"]),
    st.fixed_dictionaries(
        {"event": st.sampled_from(EVENTS)},
        optional={"at_least": st.integers(0, 2), "at_most": st.integers(2, 3), "within_days": st.integers(1, 300),
                  "include_machine": st.booleans(), "where": where},
    ),
)  # fmt: skip


def named(names: list[str], pairs: Any) -> Any:
    """Return a strategy for filters with one of the names and one of the (predicate, value) pairs."""
    return st.builds(lambda name, pair: {"name": name, "predicate": pair[0], "value": pair[1]},
                     st.sampled_from(names), pairs)  # fmt: skip


leaves = st.one_of(
    named(["contact_first_name", "first_name", "contact_last_name", "contact_source"], TEXTS),
    named([f"contact_data.{key}" for key in KEYS] + ["data.plan"], JSONS),
    named([f"contact_{n}" for n in ("created_at", "last_interacted_at", "unsubscribed_at")], TIMES),
    named(["email_last_opened_at"], TIMES),
    named(["email_open_count"], COUNTS), named(["contact_list", "list_id"], LISTS), named(["contact_tag"], TAGGED),
    named([f"contact_{name}" for name in BOOLEANS], TRUTHS), named(["contact_email"], MAIL),
    named(["contact_verification_status"], STATUS), named(["contact_suppression_reason"], REASON),
    named(["contact_language"], st.one_of(
        st.tuples(st.sampled_from(["eq", "not_eq"]), st.sampled_from(["de", "PT", "pt-br", "d", "fr"])),
        st.tuples(st.sampled_from(["in", "not_in"]), st.sampled_from([["de-AT", "pt"], ["fr"]])),
    )),
    named(["contact_country"], st.tuples(st.sampled_from(["eq", "not_eq"]), st.sampled_from(["de", "US"]))),
    named(["event"], HISTORY),
)  # fmt: skip
filters = st.recursive(
    leaves,
    lambda inner: st.builds(lambda mode, parts: {"name": "group", "predicate": mode, "value": parts},
                            st.sampled_from(["any", "all", "none"]), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=6,
)  # fmt: skip
