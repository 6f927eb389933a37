"""Reads the text format of Prometheus (0.0.4) and takes nothing that is not exactly it."""

import re
from dataclasses import dataclass, field

KINDS = ("counter", "gauge", "histogram")
_HELP = re.compile(r"# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) (\S.*)")
_TYPE = re.compile(r"# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (\w+)")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|Inf)|NaN")
_ESCAPED = re.compile(r'\\([\\"n])')
Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """A name, its type, what it means, and its numbers by suffix and labels."""

    name: str
    words: str
    kind: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, suffix: str = "", **labels: str) -> float:
        """Return the sum of the numbers that have these labels; at least one has to."""
        wanted = {(name.rstrip("_"), one) for name, one in labels.items()}
        found = [one for (end, has), one in self.samples.items() if end == suffix and wanted <= set(has)]
        assert found, f"{self.name}{suffix} has nothing with {labels}: {list(self.samples)}"
        return sum(found)

    def values_of(self, label: str) -> set[str]:
        """Return the values that a label has."""
        return {value for _, has in self.samples for name, value in has if name == label}


def parse(text: str) -> dict[str, Family]:
    """Return all families by name; raises AssertionError for whatever is not as it has to be."""
    assert text.endswith("\n") and "\r" not in text
    found: dict[str, Family] = {}
    here: Family | None = None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, words = _whole(_HELP, line)
            assert name not in found, f"{name} stands in two places"
            assert not re.search(r"(?<!\\)(?:\\\\)*\\[^\\n]", words), f"a stray backslash: {line}"
            here = found[name] = Family(name, words)
        elif line.startswith("# TYPE "):
            name, kind = _whole(_TYPE, line)
            assert here is not None and here.name == name and not here.kind and not here.samples, line
            assert kind in KINDS, line
            here.kind = kind
        else:
            _sample(here, line)
    for one in found.values():
        _check(one)
    return found


def _whole(pattern: re.Pattern[str], line: str) -> tuple[str, ...]:
    match = pattern.fullmatch(line)
    assert match, f"not as it has to be: {line!r}"
    return tuple(part or "" for part in match.groups())


def _sample(here: Family | None, line: str) -> None:
    name, labels, number = _whole(_SAMPLE, line)
    assert here is not None and here.kind and name.startswith(here.name), f"of no family: {line!r}"
    suffix = name.removeprefix(here.name)
    assert suffix in (("_bucket", "_sum", "_count") if here.kind == "histogram" else ("",)), line
    assert _NUMBER.fullmatch(number), line
    key = (suffix, _labels(labels, line))
    assert key not in here.samples, f"told twice: {line}"
    here.samples[key] = float(number)


def _labels(text: str, line: str) -> Labels:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match, f"labels of {line!r}"
        value = _ESCAPED.sub(lambda one: {"n": "\n"}.get(one[1], one[1]), match[2])
        found.append((match[1], value))
        at = match.end()
    names = [name for name, _ in found]
    assert len(names) == len(set(names)) and not text.endswith(","), line
    return tuple(found)


def _check(one: Family) -> None:
    assert one.kind and one.samples, f"{one.name} says nothing"
    if one.kind == "counter":
        assert one.name.endswith("_total") and all(value >= 0 for value in one.samples.values()), one.name
    else:
        assert not one.name.endswith(("_total", "_count", "_sum", "_bucket")), one.name
    if one.kind == "histogram":
        _check_buckets(one)


def _check_buckets(one: Family) -> None:
    """Each set of labels has its buckets, rising up to +Inf, with as many as the count says."""
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (suffix, labels), value in one.samples.items():
        if suffix == "_bucket":
            [bound] = [float(end) for name, end in labels if name == "le"]
            rest = tuple(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((bound, value))
    assert series
    for labels, buckets in series.items():
        assert buckets == sorted(buckets) and buckets[-1][0] == float("inf"), (one.name, labels)
        assert [number for _, number in buckets] == sorted(number for _, number in buckets), (one.name, labels)
        assert one.samples[("_count", labels)] == buckets[-1][1] and ("_sum", labels) in one.samples
