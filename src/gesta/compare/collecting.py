"""Cases as pytest tests: each case file is one test, and a failure shows what differs from the recorded run.

A case is a recorded run that is kept as a test. The test replays it: the agent's code runs again and gets the recorded
answers of models and tools.
"""

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from gesta.agent import Agent
from gesta.cli.loading import load
from gesta.compare.cases import check, read
from gesta.errors import BadAddress


class Drift(Exception):
    """A replayed case differs from its recording."""


class CaseFile(pytest.File):
    """The pytest collector of one case file."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the only test of the file, which is named after the file."""
        yield CaseItem.from_parent(self, name=self.path.stem)


class CaseItem(pytest.Item):
    """The pytest test of one case."""

    def runtest(self) -> None:
        """Replay the case with the agent that it names. Raises Drift if an entry differs."""
        case = read(self.path)
        drift = anyio.run(check, case, agent_at(case.head.agent, self.config.rootpath))
        if drift:
            raise Drift("\n".join(drift))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the text that pytest prints for a failure.

        If the case differs from its recording, the text is the difference and the command to accept it. If its agent is
        not found, the text says what is there.
        """
        if isinstance(excinfo.value, Drift):
            return f"{excinfo.value}\nIf that is meant: gesta case accept {self.path.relative_to(self.config.rootpath)}"
        if isinstance(excinfo.value, BadAddress):
            return f"{excinfo.value}\nThe first line of {self.path.name} names the agent."
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int, str]:
        """Return the location that pytest reports: the path of the case, line 0, and the name of the test."""
        return self.path, 0, f"case {self.name}"


def agent_at(address: str, root: Any) -> Agent:
    """Import the agent at an address, such as `shop.agents:desk` or `agent.py:desk`.

    The path of a file is relative to pytest's root folder. Raises BadAddress.
    """
    place, _, name = address.rpartition(":")
    return load(f"{root / place}:{name}" if place.endswith(".py") else address)
