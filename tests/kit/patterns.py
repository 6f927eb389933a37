"""Find the regular expressions of the product, and texts that make them slow."""

import ast
import importlib
import re
import re._constants as constants
import re._parser as parser
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.sampling import examples
from tests.kit.server import ROOT

METHODS = ("search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split")
# These methods try every position of a text, also after a match, so that one of them is measured for all.
_ALL_MATCHES = {"sub", "subn", "findall", "finditer", "split"}
LENGTH = 20_000
# A linear pattern needs about 1 ms for `LENGTH` characters, a quadratic one more than 1 s.
MAX_SECONDS = 0.15
# A text grows through these lengths, so that it costs a few seconds at most before it is recognized: in smaller steps
# for a repeat within a repeat, which may take exponential time.
_LENGTHS = (150, 1_000, 2_000, 4_000, 8_000, LENGTH)
_LENGTHS_OF_NESTED = (16, 22, 28, 34, 40, 48, 60, 75, 100, 150, 220, 330, 500, *_LENGTHS[1:])
_MIN_DECIDING_LENGTH = 1_000
_SAMPLE_LENGTH = 3_000

Regex = re.Pattern[str] | re.Pattern[bytes]


class Site(NamedTuple):
    """A regular expression of the product: its module and name (or line), and the methods that the product calls."""

    where: str
    regex: Regex
    methods: frozenset[str]


class SlowText(NamedTuple):
    """A text (as prefix, repeated unit and suffix) that costs a method `seconds` at `characters`."""

    method: str
    prefix: str
    unit: str
    suffix: str
    characters: int
    seconds: float


def module_names() -> list[str]:
    """Return the names of all modules of the product; `__main__` modules run when imported and are left out."""
    paths = sorted(path for tree in ("appliance", "ui") for path in (ROOT / tree).rglob("*.py"))
    return [_module_name(path) for path in paths if path.name != "__main__.py"]


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def collect_sites() -> list[Site]:
    """Return each distinct regular expression of the product once, with the methods of all places that use it."""
    calls: dict[str, set[str]] = defaultdict(set)  # methods by `module.NAME`, and by `NAME` of all modules
    patterns: dict[Regex, tuple[str, set[str]]] = {}

    def add(where: str, regex: Regex, methods: Iterable[str]) -> None:
        patterns.setdefault(regex, (where, set()))[1].update(methods)

    names = module_names()
    for name in names:
        path = ROOT / name.replace(".", "/")
        source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        for node, function in _calls(ast.parse(source.read_text()), None):
            method, owner = node.func.attr, node.func.value  # type: ignore[attr-defined]  # `_calls` yields calls of attributes
            if isinstance(owner, ast.Name) and owner.id == "re":
                literal = _literal(node.args[0]) if function and node.args else None
                if literal is not None and method in (*METHODS, "compile"):
                    flags = _flags([*node.args[1:], *(keyword.value for keyword in node.keywords)])
                    methods = () if method == "compile" else (method,)
                    add(f"{name}.{function}", re.compile(literal, flags), methods)
            elif method in METHODS and isinstance(owner, ast.Name | ast.Attribute):
                owner_name = owner.id if isinstance(owner, ast.Name) else owner.attr
                calls[f"{name}.{owner_name}"].add(method)
                calls[owner_name].add(method)
    for name in names:
        module = importlib.import_module(name)
        for variable, value in list(vars(module).items()):
            if variable.startswith("__"):
                continue
            for regex in _regexes(value, set()):
                is_own = variable.startswith("_")
                add(f"{name}.{variable}", regex, calls.get(f"{name}.{variable}" if is_own else variable, ()))
    return [
        Site(where, regex, frozenset(methods or {"search", "fullmatch"}))
        for regex, (where, methods) in patterns.items()
    ]


def _calls(node: ast.AST, function: str | None) -> Iterator[tuple[ast.Call, str | None]]:
    """Yield the calls of methods in a tree, each with the name of its function or None at the level of a module."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node, function
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, function)


def _literal(node: ast.expr) -> str | bytes | None:
    """Return a literal pattern; the variables of an f-string, which are escaped texts or counts, become `1`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
    return None


def _flags(nodes: list[ast.expr]) -> int:
    names = {part.attr for node in nodes for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    return int(sum(flag for flag in re.RegexFlag if flag.name in names | {_LONG_FLAGS.get(name) for name in names}))


_LONG_FLAGS = {"I": "IGNORECASE", "M": "MULTILINE", "S": "DOTALL", "X": "VERBOSE", "A": "ASCII"}


def _regexes(value: Any, seen: set[int]) -> Iterator[Regex]:
    """Yield the patterns in a value of a module, also those in its classes, tuples, lists, sets and dicts."""
    if isinstance(value, re.Pattern):
        yield value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = [*value, *value.values()]
    elif isinstance(value, tuple | list | set | frozenset):
        inner = value
    elif isinstance(value, type) and value.__module__.startswith(("appliance", "ui")):
        inner = list(vars(value).values())
    for part in inner:
        if not isinstance(part, str | int | float | bytes | None):
            yield from _regexes(part, seen)


# Hostile texts: what a pattern repeats, alone and after what precedes it, and before something that does not match.

_CHARACTERS = " a1\t\n.-_<>()@'\"&;:/,=+*#%{}[]|?!\\A0é\x00"
_FIXED_UNITS = (
    *_CHARACTERS, "\r\n", "a ", " a", "a.", "1 ", "1.", "<a", "</", "<p></p>", "@import", "<!--", "{{", "{%", "a@",
    "a-", "a=", "a:", "(a", "&a", "\\\"", "==", "a\n",
)  # fmt: skip
_SUFFIXES = ("", "\x00", "x!", "\n", " x")
_LARGE_REPEAT = 64
_MAX_TEXTS = examples(300, full=1_000)
_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT)
_SETS = (constants.IN, constants.ANY, constants.NOT_LITERAL)
_MODES = 3
_WINDOW = 4


def hostile_texts(regex: Regex) -> tuple[list[tuple[str, str, str]], bool]:
    """Return texts as prefix, unit to be repeated, and suffix, and whether the pattern has a repeat within a repeat.

    A pattern without a large repeat has no texts.
    """
    source = regex.pattern if isinstance(regex.pattern, str) else regex.pattern.decode("latin-1")
    tree = parser.parse(source, regex.flags & ~constants.SRE_FLAG_UNICODE)
    if not _has_large_repeat(tree):
        return [], False
    builder = _TextBuilder(regex.flags)
    builder.walk(list(tree), "")
    units = dict.fromkeys((*builder.units, *_FIXED_UNITS))
    prefixes = list(dict.fromkeys(("", *builder.prefixes)))
    suffixes = dict.fromkeys((*_SUFFIXES, *builder.stops))
    texts = dict.fromkeys((prefix, unit, suffix) for prefix, unit in builder.pairs for suffix in suffixes)
    texts |= dict.fromkeys(("", unit, suffix) for unit in units for suffix in ("", "\x00", *builder.stops[:4]))
    texts |= dict.fromkeys((prefix, unit, "\x00") for prefix in prefixes[:5] for unit in _FIXED_UNITS)
    wanted = [text for text in texts if text[1]]
    return wanted[:: len(wanted) // _MAX_TEXTS + 1], builder.is_nested


def _has_large_repeat(nodes: Iterable[Any]) -> bool:
    return any(
        (operator in _REPEATS and value[1] >= _LARGE_REPEAT)
        or any(_has_large_repeat(inner) for inner in _inner_sequences(operator, value))
        for operator, value in nodes
    )


def _inner_sequences(operator: Any, value: Any) -> list[list[Any]]:
    if operator in _REPEATS:
        return [list(value[2])]
    if operator is constants.SUBPATTERN:
        return [list(value[-1])]
    if operator is constants.BRANCH:
        return [list(branch) for branch in value[1]]
    if operator in (constants.ASSERT, constants.ASSERT_NOT):
        return [list(value[1])]
    return [list(value)] if operator is constants.ATOMIC_GROUP else []


class _TextBuilder:
    """The units and prefixes of a pattern: `pairs` are a piece to be repeated and what precedes it."""

    def __init__(self, flags: int) -> None:
        self.units: list[str] = []
        self.prefixes: list[str] = []
        self.pairs: list[tuple[str, str]] = []
        self.stops: list[str] = []  # characters at which a large repeat of a negated set ends
        self.is_nested = False
        self._groups: dict[int, list[str]] = {}
        self._flags = flags
        self._sets: dict[str, str] = {}

    def walk(self, nodes: list[Any], before: str, is_repeated: bool = False) -> None:
        """Collect the pieces of a sequence, which follows the text `before`, and of the sequences in it."""
        samples = [self._samples(node) for node in nodes]
        starts = [before]
        for sample in samples:
            starts.append((starts[-1] + sample[0])[-200:])
        for start in range(len(nodes)):
            is_inner_literal = start and nodes[start][0] is nodes[start - 1][0] is constants.LITERAL
            operator, value = nodes[start]
            self.is_nested = self.is_nested or (is_repeated and operator in (*_REPEATS, constants.BRANCH))
            if operator in _REPEATS and value[1] >= _LARGE_REPEAT:
                self.prefixes.append(starts[start])
                self.pairs += [(starts[start], text) for text in samples[start]]
                self.stops += self._stops(list(value[2]))
            if not is_inner_literal:
                for end in self._ends(nodes, start):
                    for mode in range(_MODES):
                        self.units.append("".join(sample[mode % len(sample)] for sample in samples[start:end]))
            for inner in _inner_sequences(operator, value):
                self.walk(inner, starts[start], is_repeated or (operator in _REPEATS and value[1] > 1))

    @staticmethod
    def _stops(body: list[Any]) -> list[str]:
        operator, value = body[0]
        if operator is constants.NOT_LITERAL:
            return [chr(value)]
        if operator is not constants.IN or value[0][0] is not constants.NEGATE:
            return []
        return [chr(member) for kind, member in value if kind is constants.LITERAL][:6]

    @staticmethod
    def _ends(nodes: list[Any], start: int) -> list[int]:
        """Return the ends of the windows of one to four pieces at `start`; adjacent literals are one piece."""
        ends = [
            index
            for index in range(start + 1, len(nodes) + 1)
            if index == len(nodes) or not nodes[index][0] is nodes[index - 1][0] is constants.LITERAL
        ]
        return [*ends[:_WINDOW], len(nodes)]

    def _samples(self, node: Any) -> list[str]:
        """Return up to `_MODES` or so texts that the node matches; never empty."""
        operator, value = node
        if operator is constants.LITERAL:
            return [chr(value)]
        if operator in _SETS:
            return list(self._members(node))
        if operator in _REPEATS:
            low, _, body = value
            bodies = self._sequence(list(body))
            return [text * max(low, 1) for text in bodies] + ([""] if not low else [])
        if operator is constants.SUBPATTERN:
            texts = self._sequence(list(value[-1]))
            if value[0] is not None:
                self._groups[value[0]] = texts
            return texts
        if operator is constants.BRANCH:
            return [text for branch in value[1][:6] for text in self._sequence(list(branch))[:2]]
        if operator is constants.ATOMIC_GROUP:
            return self._sequence(list(value))
        return self._groups.get(value, [""]) if operator is constants.GROUPREF else [""]

    def _sequence(self, nodes: list[Any]) -> list[str]:
        samples = [self._samples(node) for node in nodes]
        return ["".join(sample[mode % len(sample)] for sample in samples) for mode in range(_MODES)]

    def _members(self, node: Any) -> str:
        """Return three characters of a set: the first ones of `_CHARACTERS`, else the ones that it names itself."""
        key = repr(node)
        if key not in self._sets:
            tree = parser.parse("x", self._flags & ~constants.SRE_FLAG_UNICODE)
            tree.data[:] = [node]
            matches = _compile_tree(tree, self._flags)
            members = [character for character in _CHARACTERS if matches(character)][:_MODES]
            if not members and node[0] is constants.IN:
                named = (value if kind is constants.LITERAL else value[0] for kind, value in node[1] if value)
                members = [chr(code) for code in named if isinstance(code, int) and matches(chr(code))][:1]
            self._sets[key] = "".join(members) or "x"
        return self._sets[key]


def _compile_tree(tree: Any, flags: int) -> Any:
    import re._compiler as compiler

    code = compiler._code(tree, flags)  # type: ignore[attr-defined]  # private in the library
    import _sre

    return _sre.compile("x", flags, code, 0, {}, (None,)).fullmatch


# Measuring


def find_slow_text(regex: Regex, methods: Iterable[str], length: int = LENGTH) -> SlowText | None:
    """Return the first text of at most `length` characters that costs a method `MAX_SECONDS`, or None.

    The text grows until it costs too much, so a measurement takes a few seconds at most.
    """
    wanted = set(methods)
    if wanted & _ALL_MATCHES:
        wanted = wanted - _ALL_MATCHES - {"search"} | {"findall"}
    texts, is_nested = hostile_texts(regex)
    for text in texts:
        for method in sorted(wanted):
            slow = _measure_text(regex, method, text, length, is_nested)
            # A measurement is repeated before it counts.
            if slow is not None and _measure_text(regex, method, text, length, is_nested) is not None:
                return slow
    return None


def find_costly_text(regex: Regex, methods: Iterable[str], length: int) -> SlowText | None:
    """Return the first text that would cost a method `MAX_SECONDS` at `length` characters, or None.

    The time of a text of `_SAMPLE_LENGTH` characters is extrapolated, so use it for patterns that take linear time.
    """
    wanted = {"findall" if method in _ALL_MATCHES else method for method in methods}
    sample_length = min(_SAMPLE_LENGTH, length)
    limit = MAX_SECONDS * sample_length / length
    for text in hostile_texts(regex)[0]:
        for method in sorted(wanted):
            if all(_measure(regex, method, text, sample_length) > limit for _ in range(4)):
                return SlowText(method, *text, length, limit * length / sample_length)
    return None


def _measure_text(
    regex: Regex, method: str, text: tuple[str, str, str], length: int, is_nested: bool
) -> SlowText | None:
    for characters in _LENGTHS_OF_NESTED if is_nested else _LENGTHS:
        seconds = _measure(regex, method, text, min(characters, length))
        if seconds > MAX_SECONDS:
            return SlowText(method, *text, min(characters, length), seconds)
        # What costs less here costs less than `MAX_SECONDS` for `LENGTH` characters even if the time is quadratic.
        is_fast = characters >= _MIN_DECIDING_LENGTH and seconds < MAX_SECONDS * (characters / LENGTH) ** 2
        if is_fast or characters >= length:
            return None
    return None


def _measure(regex: Regex, method: str, text: tuple[str, str, str], characters: int) -> float:
    prefix, unit, suffix = text
    subject: Any = prefix + unit * (characters // len(unit)) + suffix
    if isinstance(regex.pattern, bytes):
        subject = subject.encode("latin-1", "replace")
    call = getattr(regex, method)
    start = time.thread_time()
    call(subject)
    return time.thread_time() - start
