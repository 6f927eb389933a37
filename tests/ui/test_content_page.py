"""Content as files on the page: the ZIP file, the check before an import, and what is refused."""

import asyncio
import io
import json
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from appliance.content.media import UPLOAD_DIR_PREFIX
from tests.kit.client import Client
from tests.kit.html_page import HtmlPage
from tests.kit.scriptless_browser import ScriptlessBrowser
from tests.kit.server import PASSWORD, Server
from ui.pages import content_files

PAGE = "/settings/content"
MAIL = {"subject": "Welcome", "body": "<p>Hi</p>"}


def pack(files: dict[str, str], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP file."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", compression) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return target.getvalue()


def download(user: ScriptlessBrowser) -> dict[str, str]:
    """Return the files of the export."""
    response = user.request("GET", f"{PAGE}/export")
    assert response.headers["content-type"] == "application/zip" and response.status == 200
    with zipfile.ZipFile(io.BytesIO(response.body)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def check(user: ScriptlessBrowser, content: bytes) -> HtmlPage:
    """Upload a ZIP file, and return the page once it was checked, or refused."""
    page = HtmlPage(user, PAGE)
    page.attach("ZIP file of an export", "content.zip", content)
    return wait(page.press("Check file"))


def wait(page: HtmlPage) -> HtmlPage:
    """Return the page once nothing runs any more."""
    deadline = time.monotonic() + 30
    while page.named("progress", ""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
        page = page.reload()
    return page


def stats(page: HtmlPage) -> list[str]:
    """Return the numbers of what is new, changed and unchanged."""
    return page.texts("#job .stat dd")


def test_content_goes_out_and_comes_in(server: Server, user: ScriptlessBrowser, api: Client) -> None:
    """An export of the same content changes nothing; a changed file changes its object, once it was applied."""
    news = api.post("/lists", {"name": "News"}).expect(201)["id"]
    flow = {"name": "Hello", "trigger": {"event": "list_add", "contact_list_id": news}, "steps": [MAIL]}
    flow_id = api.post("/flows", flow).expect(201)["id"]
    api.post("/templates", {"name": "Reply", **MAIL}).expect(201)
    assert HtmlPage(user, "/settings/data").follow("Export and import content").path == PAGE
    files = download(user)
    assert {".campanero.json", "lists/news.json", "flows/hello.json", "templates/reply.json"} <= files.keys()
    page = check(user, pack(files))
    assert stats(page)[:2] == ["0", "0"] and "has all of it already" in page.text
    # Without the ids of its objects a file is that of the object with its name; a folder around the files is fine
    del files[".campanero.json"]
    files["flows/hello.json"] = files["flows/hello.json"].replace("Welcome", "Good morning")
    files["lists/tips.json"] = '{"name": "Tips"}'
    page = check(user, pack({f"content/{name}": text for name, text in files.items()} | {"../evil.json": "x"}))
    assert stats(page)[:2] == ["1", "1"] and "tips" in page.text
    # After a kill, housekeeping finds the files by the name of their directory
    assert list(Path(tempfile.gettempdir()).glob(f"{UPLOAD_DIR_PREFIX}*/lists/tips.json"))
    assert "Good morning" not in str(api.get(f"/flows/{flow_id}").expect(200))
    page = wait(page.press("Import content"))
    assert stats(page)[:2] == ["1", "1"] and not page.named("button", "Import content")
    assert "Good morning" in str(api.get(f"/flows/{flow_id}").expect(200))
    assert len([row for row in api.get("/lists").expect(200) if row["name"] == "Tips"]) == 1
    assert not [row for row in api.get("/flows").expect(200) if row["name"] == "Hello" and row["id"] != flow_id]


def test_files_that_would_fill_the_memory(server: Server, user: ScriptlessBrowser) -> None:
    """A small file that would become very large is refused: by another compression, many objects, or many entries."""
    large = {"lists/a.json": "0" * 1_000_000}
    for compression in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert "by a method other than Deflate" in check(user, pack(large, compression)).text
    nested = f"[{'[],' * 500_000}[]]"
    assert "too large" in check(user, pack({f"lists/{name}.json": nested for name in "abcd"})).text
    assert "more than 5000 files" in check(user, b"PK\x01\x02" * 10_001).text


def test_what_cannot_be_imported(server: Server, user: ScriptlessBrowser, api: Client) -> None:
    """A file that is none, too large or wrong is refused before anything changes; so is a role without the right."""
    page = check(user, b"PK nonsense")
    assert "not a ZIP file" in page.text
    assert "too large" in check(user, pack({"lists/big.json": "0" * (9 * 1024 * 1024)})).text
    wrong = {"lists/a.json": '{"name": "A", "colour": 1}', "flows/b.json": '{"steps": [{"$ref": "lists/x"}]}'}
    page = check(user, pack(wrong))
    assert "unknown colour" in page.text and "lists/x does not exist" in page.text
    assert not [row for row in api.get("/lists").expect(200) if row["name"] == "A"]
    assert len(check(user, pack({"lists/a.json": f'{{"{"x" * 1_000_000}": 1}}'})).text) < 20_000
    # A list that the service refuses stops the import, and says which file it is
    page = wait(check(user, pack({"lists/long.json": f'{{"name": "{"x" * 300}"}}'})).press("Import content"))
    assert "lists/long was refused" in page.text
    server.cli("user", "add", "--email", "look@example.org", "--role", "viewer", stdin=f"{PASSWORD}\n")
    viewer = ScriptlessBrowser(api, "look@example.org")
    assert viewer.status("GET", PAGE) == 200 and viewer.status("POST", f"{PAGE}/apply", token="x") == 403


STATE = ".campanero.json"
DAMAGED_STEPS = {"format": 1, "accounts": {"{account}": {"flows/a": 1, "flows/a#steps": {"x": 1}}}}
# Files of strangers that no export writes, by what the page says about them
ODD_FILES = {
    "lists/a.json: nested deeper than 100 levels": {"lists/a.json": f'{{"name": {"[" * 101}{"]" * 101}}}'},
    "lists/b.json: nested deeper than 100 levels": {"lists/b.json": "[" * 900 + "]" * 900},
    "templates/c.json: nested deeper than 100 levels": {"templates/c.json": '{"design":' * 5_000},
    "contains half of a surrogate pair": {"lists/a.json": r'{"\ud800": 1}'},
    "lists/s.json: contains half of a surrogate pair": {"lists/s.json": r'{"segment_id": {"$ref": "\udfff"}}'},
    "lists/n.json: a number has more than 100 digits": {"lists/n.json": f'{{"name": {"1" * 5_000}}}'},
    "lists/i.json: a number is too large": {"lists/i.json": '{"segment_id": 1e999}'},
    "Infinity is not JSON": {"lists/a.json": '{"name": "A", "segment_id": -Infinity}'},
    "templates/a.json: translations must be": {"templates/a.json": '{"name": "A", "translations": [1]}'},
    "templates/b.json: translations must be": {"templates/b.json": '{"name": "A", "translations": {"de": "x"}}'},
    "flows/a.json: translations must be": {"flows/a.json": '{"name": "A", "translations": {"x": {}}}'},
    "flows/b.json: translations must be": {"flows/b.json": '{"name": "A", "translations": {"1": {"de": 3}}}'},
    # The texts of a list would be written to the template with the id of the list
    "lists/t.json: unknown translations": {"lists/t.json": '{"name": "T", "translations": {"de": {"subject": "x"}}}'},
    ".campanero.json is damaged": {"flows/a.json": '{"name": "A"}', STATE: json.dumps(DAMAGED_STEPS)},
}  # fmt: skip


def test_odd_files_are_named(server: Server, user: ScriptlessBrowser, api: Client) -> None:
    """What a stranger packed is refused by the name of its file, and never fails as an error of the service."""
    account = f"{api.get('/account').expect(200)['base_url']}#{api.get('/account').expect(200)['id']}"
    for words, files in ODD_FILES.items():
        page = check(user, pack({name: text.replace("{account}", account) for name, text in files.items()}))
        assert words in page.text and not page.named("button", "Import content"), words
    assert "Traceback" not in server.output


def test_odd_names_in_a_zip_file_are_left_out(server: Server, user: ScriptlessBrowser) -> None:
    """An entry without a name, and one whose name no file system can store, do not keep the others from being read."""
    content = {"lists/odd.json": '{"name": "Odd names"}'}
    nameless = pack(content | {"xyz": "{}"}).replace(b"xyz", b"\0yz")
    long_named = pack(content | {f"lists/{chr(0x1F600) * 110}.json": "{}"})
    for file in (nameless, long_named):
        page = check(user, file)
        assert stats(page)[:2] == ["1", "0"] and tempfile.gettempdir() not in page.text, page.text
    assert "Traceback" not in server.output


def test_a_long_chain_of_references(server: Server, user: ScriptlessBrowser) -> None:
    """A file may lead to another, and that one on, through as many files as a ZIP file may have."""
    chain: dict[str, str] = {}
    for number in range(0, 1_200, 2):
        mirror = {"name": f"L{number}", "segment_id": {"$ref": f"segments/s{number + 1}"}}
        condition = {"name": "list_id", "predicate": "in", "value": [{"$ref": f"lists/l{number + 2}"}]}
        chain[f"lists/l{number}.json"] = json.dumps(mirror)
        chain[f"segments/s{number + 1}.json"] = json.dumps({"name": f"S{number}", "filters": [condition]})
    page = check(user, pack(chain | {"lists/l1200.json": '{"name": "Last"}'}))
    assert stats(page)[:2] == ["1,201", "0"]
    page = check(user, pack(chain | {"lists/l1200.json": chain["lists/l0.json"]}))
    assert "these refer to each other" in page.text


def test_imports_leave_threads_to_the_service() -> None:
    """An import of each account waits for the API, which needs a common thread; one account has one thread."""

    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        running, counts = 0, []

        def work() -> None:
            nonlocal running
            running += 1
            asyncio.run_coroutine_threadsafe(asyncio.to_thread(time.sleep, 0.02), loop).result(10)
            counts.append(running)
            running -= 1

        await asyncio.gather(*(content_files.run_in_thread(number, work) for number in (1, 2)))
        counts.clear()
        abandoned = loop.create_task(content_files.run_in_thread(1, work))
        await asyncio.sleep(0.01)
        abandoned.cancel()
        await asyncio.gather(*(content_files.run_in_thread(1, work) for _ in range(2)))
        return counts

    assert asyncio.run(run()) == [1, 1, 1]
