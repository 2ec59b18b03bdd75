"""A pattern and its turn in one object: the methods of `PatternBase`, and the verbs of a workflow.

Its `emit_` methods need neither a flow nor URIs: `await self.emit_iteration(1, act)`. New code does not need this
class: a workflow, which is an async function of the verbs, does the same.
"""

from typing import Any

from gesta.compat.trustgraph.agent.orchestrator.pattern_base import PatternBase
from gesta.compat.trustgraph.agent.orchestrator.processor import Processor
from gesta.compat.trustgraph.agent.orchestrator.turn import PatternTurn
from gesta.workflow.verbs import Verbs


class Pattern(PatternTurn, PatternBase):
    """A pattern that is its own flow."""

    def __init__(self, verbs: Verbs) -> None:
        cls = type(self)
        PatternTurn.__init__(self, verbs, cls.prompts, cls.limit)
        PatternBase.__init__(self, Processor(self))
        self.call, self.note, self.now, self.pick = verbs.call, verbs.note, verbs.now, verbs.pick

    @property
    def flow(self) -> PatternTurn:
        """Return this object, which has the services of the turn."""
        return self

    @classmethod
    def _at_work(cls, verbs: Verbs, processor: Any) -> tuple[PatternTurn, PatternBase]:
        pattern = cls(verbs)
        pattern.processor = processor if processor is not None else pattern.processor
        return pattern, pattern
