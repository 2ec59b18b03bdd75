"""Counts what two systems made of the same inputs: alike, or different in a class that the input names."""

from collections import Counter
from collections.abc import Sequence
from typing import Any


class Tally:
    """What was compared, and what differed in which class."""

    def __init__(self) -> None:
        self.plain = 0
        """Comparisons of inputs that hold nothing which a class names; none of these differs."""
        self.alike = 0
        """Comparisons of other inputs that came out the same."""
        self.differ = 0
        self.classes: Counter[str] = Counter()

    def compare(self, want: Any, got: Any, foreseen: Sequence[str] = (), given: Any = None) -> bool:
        """Compare two results; a difference must be foreseen."""
        if want == got:
            self.plain += not foreseen
            self.alike += bool(foreseen)
            return True
        assert foreseen, (given, want, got)
        self.differ += 1
        self.classes.update(foreseen)
        return False

    def told(self, what: str) -> str:
        """Write down the counts."""
        odd = self.alike + self.differ
        classes = "".join(f"\n    {count:5} {name}" for name, count in self.classes.most_common())
        return (
            f"\n{what}: {self.plain + odd} compared. Of {self.plain} plain inputs 0 differ; of {odd} that hold what a class "
            f"names, {self.differ}:{classes or ' none'}"
        )
