"""HTML that is not small is sanitized in a child process with limits of time and memory (T22)."""

import contextlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.content.designs import document, sanitizer
from appliance.content.designs.render import render_design
from appliance.core import executable, limited_process
from appliance.core.errors import Unavailable
from appliance.core.limited_process import WouldWait
from tests.designs.samples import LOOK
from tests.kit.hostile_html import HOSTILE, OPENED, PIECES
from tests.kit.process_metrics import wait_until_ended
from tests.kit.sampling import every_nth, examples
from tests.kit.server import Server

# A child takes this long to start.
START_SECONDS = 1.0
COMPLEX = OPENED + "<p>x" * 3_000


@pytest.fixture(autouse=True)
def end_child() -> Iterator[None]:
    """Begin and end each test without a child and without results of earlier tests."""
    _end_child()
    yield
    _end_child()


def _end_child() -> None:
    sanitizer._fetch_result.cache.clear()
    if sanitizer._process.get_pid() is not None:
        sanitizer._process.end(must_kill=True)


def sanitize(clean: Callable[[str], str], html: str) -> str:
    """Sanitize HTML, and check the processor time of this process and of its children, and the memory of these."""
    begun, children = time.thread_time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    cleaned = clean(html)
    own = time.thread_time() - begun
    attempts = 2 if clean is sanitizer.clean_document else 1
    if sanitizer._process.get_pid() is not None:
        sanitizer._process.end()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    child_seconds = used.ru_utime + used.ru_stime - children.ru_utime - children.ru_stime
    limit = sanitizer._get_max_seconds(sanitizer.Task("document", html))
    assert child_seconds < attempts * (limit + START_SECONDS)
    # This process only finds merge tags, and makes the paragraphs: both take linear time.
    assert own < 0.2 + 1.5e-6 * len(html)
    # A child begins as a copy of this process, which may be larger than the limit.
    if used.ru_maxrss > max(children.ru_maxrss, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss):
        assert used.ru_maxrss * 1024 < sanitizer._MAX_MEMORY_BYTES
    assert len(cleaned) <= sanitizer._MAX_RESULT_CHARACTERS + len(html) * sanitizer._MAX_RESULT_PER_CHARACTER
    assert "<script" not in cleaned
    return cleaned


@pytest.mark.parametrize("name", every_nth(HOSTILE, 9))
def test_hostile_html_is_sanitized_or_becomes_paragraphs(name: str) -> None:
    """Each document has a result, within the limits of time and memory and without much work of the service."""
    sanitize(sanitizer.clean_document, HOSTILE[name])
    sanitize(sanitizer.clean_fragment, HOSTILE[name][:200_000])


@given(st.lists(st.tuples(st.sampled_from(PIECES), st.integers(1, 2_000)), min_size=1, max_size=8))
@settings(max_examples=examples(15, full=300), deadline=None)
@pytest.mark.full
def test_compositions_of_hostile_html(parts: list[tuple[str, int]]) -> None:
    """Whatever the order and number of the pieces, the limits hold."""
    html = "".join(piece * count for piece, count in parts)[:100_000]
    for clean in (sanitizer.clean_document, sanitizer.clean_fragment, sanitizer.clean_text):
        sanitize(clean, html)


def cut_small(html: str) -> str:
    """Return the longest beginning of HTML that is sanitized without the child."""
    tags = html[: sanitizer._MAX_SMALL_CHARACTERS].split("<")
    return "<".join(tags[: sanitizer._MAX_SMALL_TAGS + 1])


@given(st.lists(st.tuples(st.sampled_from((*PIECES, *HOSTILE.values())), st.integers(1, 1_000)), max_size=4))
@settings(max_examples=examples(30, full=1_000), deadline=None)
def test_small_html_takes_little_time_without_the_child(parts: list[tuple[str, int]]) -> None:
    """HTML that is small enough for the service itself takes milliseconds, and its result is not much longer."""
    html = cut_small("".join(piece[:10_000] * count for piece, count in parts))
    for clean in (sanitizer.clean_text, sanitizer.clean_fragment):
        times = []
        for _ in range(3):
            begun = time.thread_time()
            cleaned = clean(html)
            times.append(time.thread_time() - begun)
        assert min(times) < 0.05 and len(cleaned) < 2_000_000
    assert sanitizer._process.get_pid() is None


def test_complex_html_becomes_paragraphs_once() -> None:
    """The text and the merge tags of complex HTML remain; the next render does not try it again."""
    html = COMPLEX + "<p>Hi {{ first_name }} &#123;{ x }}"
    cleaned = sanitizer.clean_document(html)
    assert "<font" not in cleaned and cleaned.count("<p>x</p>") == 3_000
    assert "{{ first_name }}" in cleaned and "{{ x }}" not in cleaned
    pid = sanitizer._process.get_pid()
    assert sanitizer.clean_document(html) == cleaned and sanitizer._process.get_pid() == pid


def test_rules_that_take_too_long_to_inline_stay_in_the_head() -> None:
    """A document whose rules cannot be inlined within the limits keeps its elements."""
    for name in ("a long rule", "a long value for capitals"):
        cleaned = sanitizer.clean_document(HOSTILE[name])
        assert "style=" not in cleaned and len(cleaned) < 200_000
        assert "<style>" in cleaned and ("<b>x</b>" in cleaned or "<p>x</p>" in cleaned)


def test_a_design_of_complex_parts_takes_bounded_time() -> None:
    """After some parts that are too complex, the others become paragraphs without a try."""
    parts = [{"type": "html", "props": {"html": f"{OPENED}{'<p>x' * 500}<p>{number}"}} for number in range(20)]
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    rendered = render_design({"sections": parts}, LOOK)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert used.ru_utime - begun.ru_utime < (sanitizer._MAX_REFUSED_PARTS + 1) * START_SECONDS
    assert "<font" not in rendered.html and "<p>19</p>" in rendered.html


def kill_when_busy(pid: int) -> threading.Thread:
    """Kill a stopped child after a moment, in a thread, as the kernel does when memory runs out."""

    def kill() -> None:
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_a_killed_child_is_unavailable() -> None:
    """HTML does not become paragraphs because its child was killed; the next call starts another one."""
    html = "<style>p{color:red}</style><p>x</p>"
    sanitizer.clean_document(html + "1")
    pid = sanitizer._process.get_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    thread = kill_when_busy(pid)
    with pytest.raises(Unavailable, match="cannot be processed now"):
        sanitizer.clean_document(html)
    thread.join()
    assert wait_until_ended(pid)
    assert '<p style="color:red">x</p>' in sanitizer.clean_document(html)


def test_a_child_that_does_not_reply_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy computer changes no document either."""
    html = "<style>p{color:red}</style><p>x</p>"
    sanitizer.clean_document(html + "1")
    pid = sanitizer._process.get_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr(limited_process, "MAX_SECONDS", 0.3)
        with pytest.raises(Unavailable):
            sanitizer.clean_document(html)
    assert wait_until_ended(pid)
    assert '<p style="color:red">x</p>' in sanitizer.clean_document(html)


FAILING = """
from appliance.content.designs import document, sanitizer
class Panic(BaseException): pass
def run(task):
    raise Panic
sanitizer._run_task = run
sanitizer.main()
"""


def test_html_that_makes_a_library_fail_becomes_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the parser or inliner, which would happen again, does not keep an email waiting for good."""
    monkeypatch.setattr(executable, "_command", lambda *words: ([sys.executable, "-c", FAILING], Server().env))
    assert sanitizer.clean_document("<style>p{color:red}</style><p>Hi {{ a }}</p>") == "<p>Hi {{ a }}</p>"


@pytest.mark.parametrize("reply", ["b'\\xff' * 4", "b'\\0\\0\\0\\1\\xc1'"], ids=["too long", "invalid"])
def test_an_impossible_reply_ends_the_child(monkeypatch: pytest.MonkeyPatch, reply: str) -> None:
    """A child that a library has corrupted costs the service no memory, and the next one has its own socket."""
    send = f"import socket; s = socket.socket(fileno=0); s.recv(1); s.sendall({reply}); s.recv(1 << 20); s.recv(1)"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with monkeypatch.context() as patch:
        patch.setattr(executable, "_command", lambda *words: ([sys.executable, "-c", send], Server().env))
        with contextlib.suppress(Unavailable):
            assert "style=" not in sanitizer.clean_document("<style>p{color:red}</style><p>x</p>")
        assert sanitizer._process.get_pid() is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    sanitizer._fetch_result.cache.clear()
    assert '<p style="color:red">x</p>' in sanitizer.clean_document("<style>p{color:red}</style><p>x</p>")


def test_html_is_sanitized_without_a_thread_for_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of threads of the system changes no email and skips no recipient."""

    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Timer, "start", fail)
        assert '<p style="color:red">x</p>' in sanitizer.clean_document("<style>p{color:red}</style><p>x</p>")
    assert '<p style="color:red">y</p>' in sanitizer.clean_document("<style>p{color:red}</style><p>y</p>")


@pytest.mark.full
def test_threads_take_turns() -> None:
    """While two threads sanitize complex documents, a document of a third waits for about one of each."""
    is_over, done = threading.Event(), []

    def sanitize_many(thread: int) -> None:
        while not is_over.is_set():
            done.append(sanitizer.clean_document(f"{COMPLEX}<p>{thread} {len(done)}"))

    threads = [threading.Thread(target=sanitize_many, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    while not done:
        time.sleep(0.05)
    for number in range(3):
        before = len(done)
        assert "style=" in sanitizer.clean_document(f"<style>p{{color:red}}</style><p>{number}</p>")
        assert len(done) - before <= 3
    is_over.set()
    for thread in threads:
        thread.join()


def test_accounts_take_turns() -> None:
    """While six threads of an account sanitize complex documents, one of another account waits for about one."""
    is_over, done = threading.Event(), []

    def sanitize_many(thread: int) -> None:
        with limited_process.charge_account(1):
            while not is_over.is_set():
                done.append(sanitizer.clean_document(f"{COMPLEX}<p>{thread} {len(done)}"))

    threads = [threading.Thread(target=sanitize_many, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    while not done:
        time.sleep(0.05)
    for number in range(2):
        before = len(done)
        with limited_process.charge_account(2):
            assert "style=" in sanitizer.clean_document(f"<style>p{{color:red}}</style><p>of two {number}</p>")
        assert len(done) - before <= 2
    is_over.set()
    for thread in threads:
        thread.join()


def test_a_thread_that_must_not_wait_gets_only_known_results() -> None:
    """The writer and the sender use what was sanitized before, and do not wait for the child."""
    html = "<style>p{color:red}</style><p>x</p>"
    with limited_process.forbid_waiting():
        with pytest.raises(WouldWait):
            sanitizer.clean_document(html)
        assert sanitizer.clean_document("<p onclick=x>small") == "<p>small</p>"
    cleaned = sanitizer.clean_document(html)
    with limited_process.forbid_waiting():
        assert sanitizer.clean_document(html) == cleaned


def test_a_design_with_merge_tags_is_sanitized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later renders of a design use the earlier results, also with a footer added, and in a thread that may not wait.

    Complex parts with a merge tag would end a child in each render otherwise.
    """
    monkeypatch.setattr(sanitizer, "_MAX_SMALL_TAGS", 1)
    parts = [
        {"type": "html", "props": {"html": f"<p>{number} {{{{ first_name }}}}</p><p>x</p>"}} for number in range(3)
    ]
    parts.append({"type": "text", "props": {"text": "<p>{{ last_name }}</p><p><b>x</b></p>"}})
    design = {"sections": parts, "theme": {"logo_url": "https://x.test/{{ email }}"}}
    rendered = render_design(design, LOOK)
    assert rendered.html.count("{{ first_name }}") == 3
    with limited_process.forbid_waiting():
        again = render_design(document.add_footer(design), LOOK)
    assert "unsubscribe_url" in again.html and "{{ last_name }}" in again.html
    text = "<p>Hi {{ first_name }}</p><p><b>x</b></p>"
    normalized = sanitizer.normalize_rich_text(text)
    with limited_process.forbid_waiting():
        assert sanitizer.normalize_rich_text(text) == normalized
        with pytest.raises(WouldWait):
            sanitizer.normalize_rich_text(text + "<p>y</p>")
