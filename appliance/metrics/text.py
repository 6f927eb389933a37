"""Writes numbers as Prometheus reads them (text format 0.0.4)."""

import math
from collections.abc import Iterable

from appliance.counted import Family

KIND = "text/plain; version=0.0.4"
_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_VALUE = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def written(families: Iterable[Family]) -> str:
    """Return the text: each name once, with what it means and of which type it is, and then its numbers."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {family.words.translate(_HELP)}", f"# TYPE {family.name} {family.kind}"]
        for suffix, labels, value in family.samples:
            named = ",".join(f'{name}="{one.translate(_VALUE)}"' for name, one in labels)
            lines.append(f"{family.name}{suffix}{f'{{{named}}}' if named else ''} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
