"""The output of the MCP server costs little time, whatever the data of strangers looks like."""

import json
import time
from typing import Any

from appliance.api.mcp import output


def build_tiny_lists(count: int) -> dict[str, Any]:
    """Return custom data with many lists of one entry."""
    return {str(number): {str(inner): [1] for inner in range(100)} for number in range(count // 100)}


def test_many_small_lists_are_bounded_at_once() -> None:
    """The number of lists and objects does not multiply the work, and the result stays short."""
    for data in (build_tiny_lists(3_400), [build_tiny_lists(3_400)] * 50, {"k" * 30_000: 1}, [[[[]]]] * 9_000):
        started = time.process_time()
        bounded = output.bound({"contact": {"id": 7, "data": data}})
        assert time.process_time() - started < 1
        assert len(json.dumps(bounded.value, separators=(",", ":"))) <= output.MAX_RESULT_CHARACTERS
        assert bounded.cuts and bounded.value["contact"]["id"] == 7


def test_deep_values_are_cut() -> None:
    """A value of many levels is shown down to a level."""
    value: Any = 1
    for _ in range(300):
        value = {"a": [value]}
    bounded = output.bound({"value": value})
    assert json.dumps(bounded.value).count("[") < 60 and "levels" in bounded.cuts[0]
