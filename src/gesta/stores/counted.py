"""The tokens of a reply as SQL expressions, made from the table by which `model.usage.tokens` counts them.

They read a column `usage`, which is `USAGE` of a reply: parsing the whole reply for each count takes long. A count
that is no integer from 0 to `MAX_COUNT` is not counted, as in Python.
"""

from gesta.model.usage import COUNTED, MAX_COUNT


def _count(name: str) -> str:
    """Return an SQL expression for a count of tokens; NULL if it is none."""
    number = f"CAST(json_extract(usage, '$.{name}') AS NUMERIC)"
    return f"""CASE WHEN json_type(usage, '$.{name}') IN ('integer', 'number')
        THEN CASE WHEN {number} >= 0 AND {number} < {MAX_COUNT} THEN {number} END END"""


def _all(names: tuple[str, ...], beside: tuple[str, ...]) -> str:
    """Return an SQL expression for the first count of some names and the sum of others."""
    counts = [_count(name) for name in names]
    first = counts[0] if len(counts) == 1 else f"coalesce({', '.join(counts)})" if counts else "0"
    return " + ".join([first, *(f"coalesce({_count(name)}, 0)" for name in beside)])


def _cases(sums: dict[str, str]) -> str:
    """Return an SQL expression that is the sum of the first member which a usage has."""
    known = "\n    ".join(
        f"WHEN json_type(usage, '$.{name}') IS NOT NULL THEN {each}" for name, each in sums.items() if name
    )
    return f"CASE {known}\n    ELSE {sums['']} END"


USAGE = """CASE WHEN json_type(content, '$.usage') = 'object' THEN json_extract(content, '$.usage') END"""
"""The provider's own usage as JSON text; NULL if it is no object."""
READ = _cases({way.known_by: _all(way.read, way.read_beside) for way in COUNTED})
"""All tokens that the model read; NULL if the provider does not say."""
WROTE = _cases({way.known_by: _all(way.wrote, way.wrote_beside) for way in COUNTED})
"""All tokens that the model wrote; NULL if the provider does not say."""
