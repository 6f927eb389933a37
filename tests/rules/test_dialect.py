"""What is SQLite's own in SQL stands in few modules, each named here with why.

Whoever brings the product to another database rewrites those. Everywhere else a statement says what standard SQL says
too, or asks `appliance.db.dialect` for the piece.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.server import ROOT

PACKAGE = ROOT / "appliance"
NAMED = {
    "appliance/db/": "opens the file, migrates it, writes to it; and the words themselves",
    "appliance/tables/": "the schema",
    "appliance/contacts/search.py": "the search index is SQLite's",
    "appliance/segments/indexes.py": "indexes on custom data are tables with triggers",
    "appliance/importing/staging.py": "the staging file of an import is a database of its own",
    "appliance/importing/plain.py": "makes rows out of that file, ids and all",
    "appliance/backups/take.py": "copies the file while it is written to",
    "appliance/backups/restore.py": "refuses triggers and views in a file that comes from elsewhere",
}

# A word, how it looks in SQL, and a statement that holds it
WORDS: dict[str, tuple[str, str]] = {
    "functions of JSON": (r"\bjsonb?(?:_\w+)?\s*\(", "SELECT value FROM json_each(?)"),
    "arrows into JSON": (r"[\w})\]] ->>? (?:'|\d|\{|\?)", "SELECT data ->> '$.name' FROM contact"),
    "iif": (r"\biif\s*\(", "SELECT iif(a, 1, 2)"),
    "ifnull": (r"\bifnull\s*\(", "SELECT ifnull(a, 2)"),
    "max or min of several in a row": (r"^(?:max|min)\(.*,", "SELECT max(a, b(c, d(e)), 2)"),
    "sums of what is true": (r"^(?:sum|avg)\((?!.*\bCASE\b).*(?:[<>=]| IN | IS )", "SELECT sum(a = b(c)) FROM d"),
    "trim of other letters": (r"^[lr]?trim\(.*,", "SELECT trim(lower(a), '.')"),
    "ends of texts by a minus": (r"^substr\(.*, -", "SELECT substr(lower(a), -3)"),
    "CROSS JOIN with ON": (
        r"\bCROSS JOIN [\w{}]+(?: (?:AS )?[\w{}]+)? ON\b", "SELECT a.b FROM a CROSS JOIN c AS d ON d.b = a.b"
    ),
    "total": (r"\btotal\s*\(\S", "SELECT total(amount) FROM event"),
    "group_concat": (r"\bgroup_concat\s*\(", "SELECT group_concat(name)"),
    "functions of texts": (
        r"\b(?:instr|printf|unhex|typeof|soundex|zeroblob|randomblob|random|char)\s*\(\S",
        "SELECT instr(name, 'a')",
    ),
    "functions of time": (r"\b(?:strftime|unixepoch|julianday|datetime|timediff)\s*\(", "SELECT strftime('%m', ?)"),
    "functions of the connection": (
        r"\b(?:last_insert_rowid|changes|total_changes|sqlite_\w+)\s*\(", "SELECT last_insert_rowid()"
    ),
    "GLOB": (r"\bGLOB\b", "SELECT 1 WHERE name GLOB 'a*'"),
    "MATCH": (r"\bMATCH\b", "SELECT 1 FROM found WHERE found MATCH ?"),
    "REGEXP": (r"\bREGEXP\b", "SELECT 1 WHERE name REGEXP ?"),
    "collations": (r"\bCOLLATE (?:NOCASE|BINARY|RTRIM)\b", "SELECT name FROM contact ORDER BY name COLLATE NOCASE"),
    "the search index": (r"\b(?:contact_search [a-zA-Z(]|(?:FROM|INTO|JOIN) contact_search|fts5|bm25\()",
                         "DELETE FROM contact_search"),
    "INDEXED BY": (r"\bINDEXED BY\b", "SELECT 1 FROM message INDEXED BY message_due"),
    "NOT INDEXED": (r"\bNOT INDEXED\b", "SELECT 1 FROM message NOT INDEXED"),
    "a plus before a column": (
        r"(?:\b(?:AND|OR|WHERE|ON|BY|WHEN) |\()\+[a-z(]|^\+[a-z(]", "SELECT 1 FROM a WHERE b = 1 AND +c = ?"
    ),
    "likelihoods": (r"\b(?:likelihood|likely|unlikely)\s*\(", "SELECT 1 WHERE likely(a)"),
    "OR IGNORE and its like": (r"\bOR (?:IGNORE|REPLACE|ROLLBACK|ABORT|FAIL)\b", "INSERT OR IGNORE INTO a VALUES (1)"),
    "REPLACE INTO": (r"\bREPLACE INTO\b", "REPLACE INTO a VALUES (1)"),
    "rowid": (r"\b_?rowid_?\b", "SELECT rowid FROM a"),
    "tables of SQLite's": (r"\b(?:sqlite|pragma)_[a-z]+\b(?! *=)", "SELECT name FROM sqlite_schema"),
    "PRAGMA": (r"\bPRAGMA\b", "PRAGMA data_version"),
    "ATTACH and DETACH": (r"\b(?:ATTACH|DETACH)\b", "ATTACH ? AS other"),
    "VACUUM and its like": (r"\b(?:VACUUM|REINDEX)\b", "VACUUM"),
    "options of tables": (r"\b(?:WITHOUT ROWID|AUTOINCREMENT|USING fts)", "CREATE TABLE a (b) WITHOUT ROWID"),
    "kinds of transactions": (r"\bBEGIN (?:IMMEDIATE|EXCLUSIVE|DEFERRED)\b", "BEGIN IMMEDIATE"),
    "NOT NULL without IS": (r"(?<!IS)(?<![A-Z]{4}) (?:NOT NULL|NOTNULL|ISNULL)\b", "SELECT 1 FROM a WHERE b NOT NULL"),
    "IS of two values": (r"[\w})?] IS (?:NOT )?(?!NOT\b|NULL|TRUE|FALSE|DISTINCT|UNKNOWN|[A-Z])[\w?:'{(]",
                         "SELECT 1 FROM a WHERE b IS ?"),
    "==": (r"[\w})] == [\w{?:']", "SELECT 1 FROM a WHERE b == 1"),
    "LIMIT with a comma": (r"\bLIMIT [\w?:{}]+, ", "SELECT 1 FROM a LIMIT 5, 10"),
}  # fmt: skip
PATTERNS = {word: re.compile(pattern) for word, (pattern, _) in WORDS.items()}
# What a text has that is SQL; pieces of it are found by their own words
_SQL = re.compile(
    r"\b(?:SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|JOIN|VALUES|CASE WHEN|AND|OR|EXISTS|ORDER BY|COLLATE)\b"
)
# Words that plain texts and other languages have as well: only beside those of SQL
_SHARED = {"a plus before a column", "==", "IS of two values", "total"}
# Words that are told by what stands in the parentheses of one call
_CALLED = {word for word, (pattern, _) in WORDS.items() if pattern.startswith("^") and word not in _SHARED}
_CALL = re.compile(r"\b(\w+)\(")
_INNER = re.compile(r"\([^()]*\)")


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Walk the literals of a module, what is put into them left as `{}`; without docstrings."""
    passed: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            passed.add(id(body[0].value))
        if isinstance(node, ast.JoinedStr):
            passed.update(map(id, node.values))
            yield node.lineno, "".join(str(getattr(part, "value", "")) if isinstance(part, ast.Constant) else "{}"
                                       for part in node.values)  # fmt: skip
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed:
            yield node.lineno, node.value


def calls(text: str) -> Iterator[str]:
    """Return each call in a text, with what stands in inner parentheses taken out: a comma is of its own arguments."""
    for begin in _CALL.finditer(text):
        depth, end = 1, begin.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        inside = text[begin.end() : end - (not depth)]
        while (shorter := _INNER.sub("_", inside)) != inside:
            inside = shorter
        yield f"{begin[1]}({inside})"


def own_words(source: str) -> list[tuple[int, str, str]]:
    """Return line, word and piece for each of SQLite's own words in the texts of a module."""
    found = []
    for line, text in texts(ast.parse(source)):
        for word, pattern in PATTERNS.items():
            within = calls(text) if word in _CALLED else [text]
            hit = next(filter(None, map(pattern.search, within)), None)
            if hit and (word not in _SHARED or _SQL.search(text)):
                found.append((line, word, hit.string[max(0, hit.start() - 30) : hit.end() + 30]))
    return found


def modules() -> list[Path]:
    """Return the modules that are not named."""
    names = tuple(NAMED)
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not str(path.relative_to(ROOT)).startswith(names)]


def test_only_named_modules_speak_sqlite() -> None:
    """No other module has a word of SQLite's own in a statement; each is told with module, line and word."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}: {piece}"
        for path in modules()
        for line, word, piece in own_words(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    "shape", ["SQL = {!r}", "def ask(x):\n    return rows(f{!r}, (x,))", "SQL = (\n    'WITH a AS ('\n    {!r}\n)"]
)
def test_each_word_is_found(word: str, shape: str) -> None:
    """A statement that holds a word is found by it, as a constant, in a function, and in pieces."""
    sample = WORDS[word][1]
    assert word in {found for _, found, _ in own_words(shape.format(sample))}


def test_what_is_standard_is_let_be() -> None:
    """Standard SQL is not taken for SQLite's, nor is prose, nor what stands in a docstring."""
    fine = (
        "SELECT CASE WHEN a IS NOT NULL THEN coalesce(b, 0) END, max(c), min(coalesce(d, 0)), 1 FROM e WHERE f IS TRUE",
        "INSERT INTO a (b) VALUES (?) ON CONFLICT (b) DO UPDATE SET c = excluded.c RETURNING id",
        "SELECT count(*) FILTER (WHERE a + b > 1), sum(CASE WHEN a = 1 THEN 2 END), sum(e) FROM c",
        "SELECT a FROM c WHERE d IS NOT DISTINCT FROM ? ORDER BY e NULLS LAST LIMIT 5",
        "the total (of all) is not null, and a match is no rowing",
    )
    for text in fine:
        assert own_words(f"SQL = {text!r}") == []
    assert own_words('"""Reads `PRAGMA data_version`."""') == []


def test_named_modules_are_few_and_there() -> None:
    """Every name in the list is a module or package that does speak SQLite; nothing is excused that need not be."""
    for name in NAMED:
        paths = [ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.py"))
        assert any(own_words(path.read_text()) for path in paths), name
    assert len(NAMED) < 10
