"""Each mend can be taken out, so that the campaign shows that it would be missed.

A mend is taken out in the processes of the cases, by replacing a function or a line of one. `found` is what the campaign
then has to say within 200 cases.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from benchmarks.faults.campaign import Plan, Total, campaign

CASES = 200
TIME_S = 600.0


class Mend(Struct, frozen=True, kw_only=True):
    """A mend of one finding."""

    what: str
    """What happens without it."""
    take_out: Callable[[], None]
    found: str
    """Pattern of what the campaign says."""


MENDS: dict[str, Mend] = {}


def shown(name: str, plan: Plan, stores: Sequence[str], jobs: int) -> int:
    """Take a mend out, and carry out cases until the campaign says so; 0 if it did within 200."""
    mend = MENDS[name]
    mend.take_out()
    missed = re.compile(mend.found)

    def stop(total: Total) -> bool:
        return total.cases >= CASES or any(missed.search(text) for text in total.wrong)

    total = campaign(plan, stores, jobs=jobs, seconds=TIME_S, keep=None, stop=stop)
    told: list[Any] = [text for text in total.wrong if missed.search(text)]
    words = told[0] if told else f"not found in {total.cases} cases"
    print(f"{name}: {mend.what}: {words}", file=sys.stderr if not told else sys.stdout)
    return 0 if told else 1
