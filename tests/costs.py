"""How the cost of work grows, in processor time of this process alone, so that a busy machine does not count."""

import time
from collections.abc import Callable


def cost_s(work: Callable[[], object], tries: int = 3) -> float:
    """The least of some tries."""
    found = []
    for _ in range(tries):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def growth(work: Callable[[int], object], size: int) -> float:
    """How many times as much four times the size costs: about 4 where cost goes with the size, 16 with its square.

    What costs less than 5 ms counts as that: there caches are seen, and no square. What looks like one is measured
    again.
    """
    small, large = cost_s(lambda: work(size), 2), cost_s(lambda: work(4 * size), 1)
    for _ in range(2):
        if large / max(small, 0.005) < LINEAR:
            break
        small, large = min(small, cost_s(lambda: work(size), 1)), min(large, cost_s(lambda: work(4 * size), 1))
    return large / max(small, 0.005)


LINEAR = 8
"""A growth that is below it is not a square."""
