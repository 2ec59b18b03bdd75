"""The calls of a recorded conversation that have no result so far.

Finding a call by its id is fast for any number of calls.
"""

from collections import OrderedDict, defaultdict, deque


class Waiting:
    """Calls without a result, by seq, each with the id of the source.

    The cost of a step does not grow with their number.
    """

    def __init__(self) -> None:
        self._now = OrderedDict[int, str | None]()
        self._by_id = defaultdict[str, deque[int]](deque)
        self._late = defaultdict[str, deque[int]](deque)

    def add(self, seq: int, call_id: str | None) -> None:
        """Add a call."""
        self._now[seq] = call_id
        if call_id is not None:
            self._by_id[call_id].append(seq)

    def answer(self, call_id: str | None) -> tuple[int | None, bool]:
        """Return the call that a result answers, and whether the result is late.

        Without an id it is the first open call.
        """
        if call_id is None:
            if not self._now:
                return None, False
            seq, known = self._now.popitem(last=False)
            if known is not None:
                self._by_id[known].remove(seq)  # the first of its id, since it is the first of all
            return seq, False
        for calls, late in ((self._by_id, False), (self._late, True)):
            if calls.get(call_id):
                seq = calls[call_id].popleft()
                self._now.pop(seq, None)
                return seq, late
        return None, False

    def give_up(self) -> int:
        """Return the number of open calls, and treat their results as late from now on."""
        count = len(self._now)
        if not count:
            return 0
        for call_id, seqs in self._by_id.items():
            self._late[call_id].extend(seqs)
        self._now.clear()
        self._by_id.clear()
        return count
