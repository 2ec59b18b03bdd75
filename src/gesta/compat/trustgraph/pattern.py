"""A pattern and its turn in one object, which has the methods of `PatternBase` and those of a workflow.

The `emit_` methods of this object need no flow and no URIs: `await self.emit_iteration(1, act)`. New code does not need
this class: a workflow, an async function that gets the same methods as an argument, does the same.
"""

from typing import Any

from gesta.compat.trustgraph.agent.orchestrator.pattern_base import PatternBase
from gesta.compat.trustgraph.agent.orchestrator.processor import Processor
from gesta.compat.trustgraph.agent.orchestrator.turn import PatternTurn
from gesta.workflow.verbs import Verbs


class Pattern(PatternTurn, PatternBase):
    """A pattern that also offers the services which other patterns get as their argument `flow`."""

    def __init__(self, verbs: Verbs) -> None:
        cls = type(self)
        PatternTurn.__init__(self, verbs, cls.prompts, cls.limit)
        PatternBase.__init__(self, Processor(self))
        self.call, self.note, self.now, self.pick = verbs.call, verbs.note, verbs.now, verbs.pick

    @property
    def flow(self) -> PatternTurn:
        """This object, which offers the services of the turn."""
        return self

    @classmethod
    def _at_work(cls, verbs: Verbs, processor: Any) -> tuple[PatternTurn, PatternBase]:
        pattern = cls(verbs)
        pattern.processor = processor if processor is not None else pattern.processor
        return pattern, pattern
