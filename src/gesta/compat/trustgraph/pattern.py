"""A pattern and its turn in one object, so that a pattern can write `await self.emit_iteration(1, act)`.

A pattern is a class whose method `iterate` runs one step of an agent; a turn is the work on one question. In this
class, the `emit_` methods need no flow and no URIs. New programs do not need the class: a workflow (an async function
that gets `Verbs`) can do the same.
"""

from typing import Any

from gesta.compat.trustgraph.agent.orchestrator.pattern_base import PatternBase
from gesta.compat.trustgraph.agent.orchestrator.processor import Processor
from gesta.compat.trustgraph.agent.orchestrator.turn import PatternTurn
from gesta.workflow.verbs import Verbs


class Pattern(PatternTurn, PatternBase):
    """Base class of patterns that call the methods of their turn on `self`.

    Other patterns call them on the argument `flow`.
    """

    def __init__(self, verbs: Verbs) -> None:
        cls = type(self)
        PatternTurn.__init__(self, verbs, cls.prompts, cls.limit)
        PatternBase.__init__(self, Processor(self))
        self.call, self.note, self.now, self.pick = verbs.call, verbs.note, verbs.now, verbs.pick

    @property
    def flow(self) -> PatternTurn:
        """This object, for code that expects the turn as `flow`."""
        return self

    @classmethod
    def _at_work(cls, verbs: Verbs, processor: Any) -> tuple[PatternTurn, PatternBase]:
        pattern = cls(verbs)
        pattern.processor = processor if processor is not None else pattern.processor
        return pattern, pattern
