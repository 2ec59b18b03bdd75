"""SQL expressions that count the tokens of a model's reply, from the provider's own report `usage`.

The table `COUNTED` says which members of the report to add. `model.usage.tokens` does the same in Python. The
expressions read a column `usage`, which holds the result of `USAGE`. Without that column, SQL would parse the whole
reply for each count. A count that is not an integer from 0 to `MAX_COUNT` is ignored, as in Python.
"""

from gesta.model.usage import COUNTED, MAX_COUNT


def _count(name: str) -> str:
    """Return an SQL expression for one count of tokens in `usage`; NULL if the usage has no valid count."""
    number = f"CAST(json_extract(usage, '$.{name}') AS NUMERIC)"
    return f"""CASE WHEN json_type(usage, '$.{name}') IN ('integer', 'number')
        THEN CASE WHEN {number} >= 0 AND {number} < {MAX_COUNT} THEN {number} END END"""


def _all(names: tuple[str, ...], beside: tuple[str, ...]) -> str:
    """Return an SQL expression for the first valid count among `names`, plus all valid counts among `beside`."""
    counts = [_count(name) for name in names]
    first = counts[0] if len(counts) == 1 else f"coalesce({', '.join(counts)})" if counts else "0"
    return " + ".join([first, *(f"coalesce({_count(name)}, 0)" for name in beside)])


def _cases(sums: dict[str, str]) -> str:
    """Return an SQL expression that chooses one of several sums, by the members that the JSON object `usage` has.

    Args:
        sums: the SQL of each sum, under the name of a member. The sum of the first member that exists is used. The sum
            under the empty name is used if no member exists.
    """
    known = "\n    ".join(
        f"WHEN json_type(usage, '$.{name}') IS NOT NULL THEN {each}" for name, each in sums.items() if name
    )
    return f"CASE {known}\n    ELSE {sums['']} END"


USAGE = """CASE WHEN json_type(content, '$.usage') = 'object' THEN json_extract(content, '$.usage') END"""
"""SQL for the provider's own count of tokens, as JSON text; NULL if the reply has none."""
READ = _cases({way.known_by: _all(way.read, way.read_beside) for way in COUNTED})
"""SQL for the number of all tokens that the model read; NULL if the provider does not report it."""
WROTE = _cases({way.known_by: _all(way.wrote, way.wrote_beside) for way in COUNTED})
"""SQL for the number of all tokens that the model wrote; NULL if the provider does not report it."""
