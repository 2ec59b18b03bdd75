"""The calls of a recorded conversation that have no result so far.

A call is found by its id at the same cost, however many calls there are.

A run is a list of entries, which are recorded facts. A seq is the number of an entry in its run. A span is a part of a
run from its begin entry to its end entry, such as a turn: the work on one message.
"""

from collections import OrderedDict, defaultdict, deque


class Waiting:
    """The calls without a result. Each is known by the seq of its entry and the id that the source gave it.

    After `give_up`, a result of a call that was added before is still matched to that call, but is reported as late.
    """

    def __init__(self) -> None:
        self._now = OrderedDict[int, str | None]()
        self._by_id = defaultdict[str, deque[int]](deque)
        self._late = defaultdict[str, deque[int]](deque)

    def add(self, seq: int, call_id: str | None) -> None:
        """Add a call without a result."""
        self._now[seq] = call_id
        if call_id is not None:
            self._by_id[call_id].append(seq)

    def answer(self, call_id: str | None) -> tuple[int | None, bool]:
        """Remove the call that a result answers. Return the call's seq, and whether the result came after `give_up`.

        The seq is `None` if no call waits for this result. A result without an id answers the first call that waits.
        """
        if call_id is None:
            if not self._now:
                return None, False
            seq, known = self._now.popitem(last=False)
            if known is not None:
                self._by_id[known].remove(seq)  # quick: the first of all calls is also the first with its id
            return seq, False
        for calls, late in ((self._by_id, False), (self._late, True)):
            if calls.get(call_id):
                seq = calls[call_id].popleft()
                self._now.pop(seq, None)
                return seq, late
        return None, False

    def give_up(self) -> int:
        """Stop waiting for all calls added so far, and return how many they are.

        `answer` reports results of these calls as late.
        """
        count = len(self._now)
        if not count:
            return 0
        for call_id, seqs in self._by_id.items():
            self._late[call_id].extend(seqs)
        self._now.clear()
        self._by_id.clear()
        return count
