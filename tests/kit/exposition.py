"""A strict parser of the Prometheus text format (0.0.4)."""

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
    """A metric family: name, type, help, and samples by suffix and labels."""

    name: str
    help_text: str
    kind: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, suffix: str = "", **labels: str) -> float:
        """Return the sum of the samples with these labels; at least one must exist."""
        wanted = {(name.rstrip("_"), text_) for name, text_ in labels.items()}
        texts = [text_ for (end, has), text_ in self.samples.items() if end == suffix and wanted <= set(has)]
        assert texts, f"{self.name}{suffix} has nothing with {labels}: {list(self.samples)}"
        return sum(texts)

    def values_of(self, label: str) -> set[str]:
        """Return the values of a label."""
        return {value for _, has in self.samples for name, value in has if name == label}


def parse(text: str) -> dict[str, Family]:
    """Return all families by name. Raises AssertionError for anything that is not exactly in the format."""
    assert text.endswith("\n") and "\r" not in text
    families: dict[str, Family] = {}
    family: Family | None = None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, help_text = _match_line(_HELP, line)
            assert name not in families, f"{name} stands in two places"
            assert not re.search(r"(?<!\\)(?:\\\\)*\\[^\\n]", help_text), f"a stray backslash: {line}"
            family = families[name] = Family(name, help_text)
        elif line.startswith("# TYPE "):
            name, kind = _match_line(_TYPE, line)
            assert family is not None and family.name == name and not family.kind and not family.samples, line
            assert kind in KINDS, line
            family.kind = kind
        else:
            _parse_sample(family, line)
    for family_ in families.values():
        _check_family(family_)
    return families


def _match_line(pattern: re.Pattern[str], line: str) -> tuple[str, ...]:
    match = pattern.fullmatch(line)
    assert match, f"not as it has to be: {line!r}"
    return tuple(part or "" for part in match.groups())


def _parse_sample(family: Family | None, line: str) -> None:
    name, labels, number = _match_line(_SAMPLE, line)
    assert family is not None and family.kind and name.startswith(family.name), f"of no family: {line!r}"
    suffix = name.removeprefix(family.name)
    assert suffix in (("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)), line
    assert _NUMBER.fullmatch(number), line
    key = (suffix, _parse_labels(labels, line))
    assert key not in family.samples, f"told twice: {line}"
    family.samples[key] = float(number)


def _parse_labels(text: str, line: str) -> Labels:
    pairs: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match, f"labels of {line!r}"
        value = _ESCAPED.sub(lambda escape: {"n": "\n"}.get(escape[1], escape[1]), match[2])
        pairs.append((match[1], value))
        at = match.end()
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)) and not text.endswith(","), line
    return tuple(pairs)


def _check_family(family: Family) -> None:
    assert family.kind and family.samples, f"{family.name} says nothing"
    if family.kind == "counter":
        assert family.name.endswith("_total") and all(value >= 0 for value in family.samples.values()), family.name
    else:
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name
    if family.kind == "histogram":
        _check_buckets(family)


def _check_buckets(family: Family) -> None:
    """Check that each set of labels has rising buckets up to +Inf, which equals the count."""
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (suffix, labels), value in family.samples.items():
        if suffix == "_bucket":
            [bound] = [float(end) for name, end in labels if name == "le"]
            rest = tuple(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((bound, value))
    assert series
    for labels, buckets in series.items():
        assert buckets == sorted(buckets) and buckets[-1][0] == float("inf"), (family.name, labels)
        assert [number for _, number in buckets] == sorted(number for _, number in buckets), (family.name, labels)
        assert family.samples[("_count", labels)] == buckets[-1][1] and ("_sum", labels) in family.samples
