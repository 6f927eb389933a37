"""The file of the journal: lines of sent messages, compaction, copies, and journals of newer versions."""

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core import crypto
from appliance.storage import journal, journal_compaction, journal_shipping, transactions
from appliance.storage.journal import JOURNAL_FILE, JournalLine, JournalPosition, Sent, SentMessage, UnknownLine
from tests.domain.home import Home

DAY_MS = 86_400_000
NEWER = b'{"at":5,"account":1,"act":"of_a_newer_version","more":[1,2]}\n'

MESSAGES = st.lists(
    st.builds(
        SentMessage,
        st.integers(1, 2**63 - 1), st.integers(0, 2**63 - 1), st.binary(min_size=6, max_size=6),
        st.integers(0, 2**63 - 1), st.integers(0, 2**31),
    ),
    min_size=1, max_size=50, unique_by=lambda message: message.message_id,
)  # fmt: skip


@pytest.fixture
def path(home: Home) -> Iterator[Path]:
    """Yield the path of the journal, which is open."""
    journal.open_journal(home.directory)
    yield home.directory / JOURNAL_FILE
    journal._journal = None


def write_opt_out(at: int) -> None:
    """Write an opt-out at a time (ms)."""
    transactions.write(lambda: journal.append(1, "opt_out", kind="email", hash="0" * 40, by="recipient", at=at))


def write_sent(at: int, count: int = 1, **source: Any) -> None:
    """Write a line about `count` messages."""
    messages = [SentMessage(number + 1, number + 1, b"abcdef") for number in range(count)]
    transactions.write(lambda: journal.append_sent(journal.pack_sent(messages, at=at, account=1, campaign=7, **source)))


def read_times(path: Path, position: JournalPosition | None, since_ms: int = 0) -> list[int]:
    """Return the times of the lines behind a position, or since a time."""
    return [line.at if line is not None else -1 for line in journal.read_since(path, position, since_ms)]


@given(MESSAGES, st.booleans())
def test_a_line_has_what_was_put_into_it(messages: list[SentMessage], is_flow: bool) -> None:
    """Packing and reading a line gives the messages in the order of their ids."""
    if not is_flow:
        messages = [message._replace(run_id=0, step_id=0) for message in messages]
    line = journal.pack_sent(messages, at=1, account=1, **({"flow": 3} if is_flow else {"campaign": 3}))
    read = journal.parse_line(msgspec.json.encode(line))
    assert isinstance(read, Sent) and read.list_messages() == sorted(messages)


@pytest.mark.parametrize(
    "change",
    [
        {"ids": []}, {"ids": [0]}, {"ids": [2**63]}, {"ids": [5, -5]}, {"contacts": [1, 2]}, {"contacts": [-1]},
        {"hashes": "YWJj"}, {"hashes": "???"}, {"hashes": 3}, {"runs": [1]}, {"flow": 3}, {"flow": 3, "runs": [1]},
        {"flow": 3, "campaign": 3, "runs": [1], "steps": [1]}, {"campaign": 0}, {"due": -1}, {"doubt": "x"},
    ],
    ids=str,
)  # fmt: skip
def test_damaged_lines_about_sent_messages(change: dict[str, Any]) -> None:
    """A line whose lists do not fit together, or whose ids are out of range, is damaged."""
    line = {"act": "sent", "at": 1, "account": 1, "ids": [1], "contacts": [1], "hashes": "YWJjZGVm"}
    assert isinstance(journal.parse_line(json.dumps(line).encode()), Sent)
    assert journal.parse_line(json.dumps(line | change).encode()) is None


def test_compaction_keeps_positions(path: Path) -> None:
    """Positions of before stay valid; old lines about sent messages go, and all other lines stay."""
    positions = []
    for day in range(6):
        write_opt_out(day * DAY_MS + 1)
        write_sent(day * DAY_MS + 2, 100)
        with path.open("ab") as file:
            file.write(NEWER.replace(b'"at":5', f'"at":{day * DAY_MS + 3}'.encode()) + b"damaged\n")
        positions.append(journal.find_end(path))
    before = [read_times(path, position) for position in positions]
    size = path.stat().st_size
    assert journal_compaction.compact(path.parent, 2 * DAY_MS, 10**9) == 0
    removed = journal_compaction.compact(path.parent, 2 * DAY_MS, 1)
    assert removed > 1_000 and path.stat().st_size < size - removed + journal_compaction._HEADER_BYTES
    assert [read_times(path, position) for position in positions[1:]] == before[1:]
    # The first position is before what was removed: its lines are selected by time.
    assert read_times(path, positions[0], DAY_MS) == [-1, DAY_MS + 1, DAY_MS + 3, -1, *before[1]]
    write_opt_out(9 * DAY_MS)
    assert read_times(path, positions[-1]) == [9 * DAY_MS]
    # A second time, behind the lines that were kept.
    assert journal_compaction.compact(path.parent, 4 * DAY_MS, 1) > 1_000
    assert [read_times(path, position)[:-1] for position in positions[3:]] == before[3:]
    kinds = [type(line) for line in journal.read_since(path, None, 0)]
    assert kinds.count(UnknownLine) == 6 and kinds.count(type(None)) == 6 and kinds.count(Sent) == 2
    assert kinds.count(journal.OptOut) == 7 and path.stat().st_mode & 0o077 == 0


def test_a_version_of_before_selects_lines_by_time(path: Path) -> None:
    """A program that knows only the id of the first line does not find its position in a compacted journal."""
    write_sent(1, 10)
    write_opt_out(DAY_MS)
    old = json.loads(path.read_bytes().splitlines()[0])["journal"]
    assert journal_compaction.compact(path.parent, DAY_MS, 1)
    first_line = json.loads(path.read_bytes().splitlines()[0])
    assert first_line["journal"] != old == first_line["lineage"] and first_line["sent_since"] == DAY_MS


def test_a_failed_compaction_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the new journal cannot be written, the old one stays, without a file beside it."""
    write_sent(1, 10)
    write_opt_out(DAY_MS)
    content = path.read_bytes()
    monkeypatch.setattr(journal_compaction, "_HEADER_BYTES", 20)  # too short for its numbers
    with pytest.raises(OSError, match="first line"):
        journal_compaction.compact(path.parent, DAY_MS, 1)
    assert path.read_bytes() == content and not list(path.parent.glob(".campanero-*"))


def test_copies_follow_the_journal(path: Path, tmp_path: Path) -> None:
    """A copy gets what is new, and the whole file if it does not belong to the journal any more."""
    copy = tmp_path / "copy.jsonl"
    assert journal_shipping.append_pieces(copy, journal_shipping.read_pieces(path, None)) is None
    write_opt_out(1)
    end = journal_shipping.append_pieces(copy, journal_shipping.read_pieces(path, None))
    assert end == journal.find_end(path) and copy.read_bytes() == path.read_bytes()
    assert list(journal_shipping.read_pieces(path, end)) == []
    for number in range(20):
        write_sent(number, 30)
    with path.open("ab") as file:
        file.write(b'{"at":17,"account":1,"act":"opt_')  # a line that is being written
    pieces = list(journal_shipping.read_pieces(path, end, max_bytes=1_000))
    assert len(pieces) > 5 and not any(piece.is_first for piece in pieces) and pieces[-1].is_last
    assert all(piece.content.endswith(b"\n") for piece in pieces)
    end = journal_shipping.append_pieces(copy, pieces)
    assert path.read_bytes().startswith(copy.read_bytes()) and end == pieces[-1].end
    with pytest.raises(journal_shipping.PieceMismatch):
        journal_shipping.append_pieces(copy, pieces)
    with path.open("ab") as file:
        file.write(b"\n")
    write_opt_out(DAY_MS)
    end = journal_shipping.append_pieces(copy, journal_shipping.read_pieces(path, end))
    assert copy.read_bytes() == path.read_bytes()
    # A compaction leaves the position valid, and another journal does not.
    assert journal_compaction.compact(path.parent, DAY_MS, 1)
    write_opt_out(2 * DAY_MS)
    assert journal_shipping.append_pieces(copy, journal_shipping.read_pieces(path, end)) == journal.find_end(path)
    assert copy.read_bytes().endswith(path.read_bytes()[-50:]) and copy.stat().st_size > path.stat().st_size
    strange = journal_shipping.read_pieces(path, JournalPosition("another", 5), max_bytes=1_000)
    assert journal_shipping.append_pieces(copy, strange) == journal.find_end(path)
    assert copy.read_bytes() == path.read_bytes() and not list(tmp_path.glob("*.arriving"))


def test_a_journal_of_a_newer_format_is_refused(path: Path) -> None:
    """It is neither written nor read, and stays as it is."""
    write_opt_out(1)
    newer = path.read_bytes().replace(b'{"journal"', b'{"format":2,"journal"', 1)
    path.write_bytes(newer)
    for act in (journal.find_end, lambda file: list(journal.read_since(file, None, 0))):
        with pytest.raises(journal.JournalTooNew, match="has format 2, this program knows 1: use the newer program"):
            act(path)
    with pytest.raises(journal.JournalTooNew):
        journal.open_journal(path.parent)
    assert path.read_bytes() == newer


def test_a_journal_of_another_key_is_refused(path: Path) -> None:
    """It is neither written nor read, also once it was compacted; one without a key is of an earlier version."""
    write_sent(1, 500)
    assert journal_compaction.compact(path.parent, 5 * DAY_MS, 0)
    own = path.read_bytes()
    key = f'"key":"{crypto.key_fingerprint()}"'.encode()
    path.write_bytes(own.replace(key, b'"key":"0123456789abcdef"', 1))
    for act in (journal.find_end, lambda file: list(journal.read_since(file, None, 0))):
        with pytest.raises(journal.ForeignJournal, match="is the journal of another installation: move it away"):
            act(path)
    with pytest.raises(journal.ForeignJournal):
        journal.open_journal(path.parent)
    path.write_bytes(b'{"journal":"earlier"}\n')
    assert journal.find_end(path) == JournalPosition("earlier", 22)


def test_a_long_damaged_line_is_read_in_parts(path: Path) -> None:
    """A file of zeros, as some power cuts leave it, does not fill the memory: each part is a damaged line."""
    path.write_bytes(b"")
    os.truncate(path, 40_000_000)
    tracemalloc.start()
    try:
        assert set(read_times(path, None)) == {-1} and journal.find_end(path) is None
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_only_refusals_are_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line about sent messages is not synced; an opt-out is, with all lines before it."""
    write_opt_out(1)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    write_sent(2)
    assert not synced and len(read_times(path, None)) == 2
    write_opt_out(3)
    assert len(synced) == 1


def test_unknown_lines_are_lines_of_known_form(path: Path) -> None:
    """A line of a newer version has its act and time; a known act with wrong values is damaged."""
    line = journal.parse_line(NEWER)
    assert isinstance(line, UnknownLine) and not isinstance(line, JournalLine) and line.at == 5
    assert journal.parse_line(b'{"at":5,"account":1,"act":"opt_out"}') is None
