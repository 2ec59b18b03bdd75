"""Cases as pytest tests: each file is one test, and a failure shows what differs from the recording."""

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from gesta.agent import Agent
from gesta.cli.loading import load
from gesta.compare.cases import check, read


class Drift(Exception):
    """A replayed case differs from its recording."""


class CaseFile(pytest.File):
    """A file that is a case."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the one test of the file."""
        yield CaseItem.from_parent(self, name=self.path.stem)


class CaseItem(pytest.Item):
    """A case as a test."""

    def runtest(self) -> None:
        """Replay the case with the code of its agent."""
        case = read(self.path)
        drift = anyio.run(check, case, agent_at(case.head.agent, self.config.rootpath))
        if drift:
            raise Drift("\n".join(drift))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return a drift in words. Any other failure is returned in pytest's form."""
        if isinstance(excinfo.value, Drift):
            return f"{excinfo.value}\nIf that is meant: gesta case accept {self.path.relative_to(self.config.rootpath)}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int, str]:
        """Return the path of the case and its name."""
        return self.path, 0, f"case {self.name}"


def agent_at(address: str, root: Any) -> Agent:
    """Import the agent of a case. The path of a file is relative to the root of the tests. Raises BadAddress."""
    place, _, name = address.rpartition(":")
    return load(f"{root / place}:{name}" if place.endswith(".py") else address)
