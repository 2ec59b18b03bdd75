"""Imports an agent from the file or module that defines it: `FILE.py:NAME` or `dotted.module:NAME`.

An error in that file is for its author to mend, so the message shows a line of the author's code, and none of Gesta's.
"""

import importlib
import importlib.util
import linecache
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import msgspec

from gesta.address import bind, model
from gesta.agent import Agent
from gesta.cli.talk import Stop
from gesta.decide.approval import Approver
from gesta.errors import BadAddress, nearest

FORM = "Write FILE.py:NAME, as in agent.py:agent, or dotted.module:NAME."


def load(address: str) -> Agent:
    """Return the agent at an address such as `agent.py:desk`. Its file or module is imported.

    Raises:
        BadAddress: there is no such agent. The message says what is there instead.
    """
    return _found(address)[2]


def load_all(addresses: Sequence[str]) -> tuple[list[Agent], Approver | None]:
    """Return the agents at these addresses, and the object named `approver` in one of their files, or `None`.

    This Approver decides which approvals of people are accepted.

    Raises:
        BadAddress: there is no such agent, `approver` in a file is not an Approver, or two files have different ones.
    """
    agents, found = list[Agent](), dict[str, Approver]()
    for address in addresses:
        place, module, agent = _found(address)
        agents.append(agent)
        made = _approver(place, module)
        for other, known in found.items():
            if made is not None and known != made:
                own = f"{other} and {place} each have an `approver` of their own"
                raise BadAddress(f"{own}, and a record has one. Import the one from the other.")
        found |= {place: made} if made is not None else {}
    return agents, next(iter(found.values()), None)


def with_model(agent: Agent, name: str | None, base_url: str | None) -> Agent:
    """Return the agent with the model that the options name.

    A missing key of that model is reported now, not at the first call.

    Raises:
        Stop: the options have a base URL, but no model.
        BadAddress: the agent has no model, and the options name none.
    """
    name = name or (agent.model if isinstance(agent.model, str) else None) or None
    if base_url and name is None:
        raise Stop("--base-url says where, but not which model. Add --model NAME, by that server's own name for it.")
    if name is None and agent.lacks_model:
        raise BadAddress(_lacks_model(agent))
    if name is not None and (base_url or name != agent.model):
        agent = msgspec.structs.replace(agent, model=model(name, base_url))
    return bind(agent)


def with_servers(agents: Sequence[Agent], servers: Sequence[str] | None) -> list[Agent]:
    """Return the agents with the tools of MCP servers added. Raises BadAddress for a bad address, and MissingExtra.

    Args:
        servers: a command or URL for each server.
    """
    if not servers:
        return list(agents)
    from gesta.bridges.mcp.source import mcp  # it loads an HTTP client

    added = [mcp(each) for each in servers]
    return [msgspec.structs.replace(each, tools=[*each.tools, *added]) for each in agents] if added else list(agents)


def with_default(agents: Sequence[Agent], name: str | None) -> list[Agent]:
    """Return the agents; those without a model get the model that `name` names.

    Raises BadAddress if an agent still has no model.
    """
    made = [msgspec.structs.replace(each, model=name) if name and each.lacks_model else each for each in agents]
    for each in made:
        if each.lacks_model:
            raise BadAddress(_lacks_model(each))
    return made


def _lacks_model(agent: Agent) -> str:
    return (
        f"Agent {agent.name!r} of {agent.hint or 'its file'} has no model. Add --model openai:gpt-5-mini, or any that "
        "`gesta models` lists, or write model=... in the file; model=gesta.scripted(...) needs no key."
    )


def _found(address: str) -> tuple[str, ModuleType, Agent]:
    place, _, name = address.rpartition(":")
    if not place or not name or place.endswith((":", "/", "\\")):
        raise BadAddress(_no_name(address))
    module = _file(place) if _is_file(place) else _dotted(place)
    if not hasattr(module, name):
        agents = _agents(module)
        raise BadAddress(f"No {name!r} in {place}.{nearest(name, agents)} {_listed(agents, place)}")
    found = getattr(module, name)
    if not isinstance(found, Agent):
        kind = type(found).__name__
        raise BadAddress(f"{address} is of type {kind}, not an Agent. {_listed(_agents(module), place)}")
    return place, module, msgspec.structs.replace(found, hint=found.hint or address)


def _approver(place: str, module: ModuleType) -> Approver | None:
    """Return the Approver named `approver` in a module; `None` if nothing has this name, or an agent has it.

    Raises BadAddress if any other object has this name.

    Args:
        place: the path or name of the module, for the error.
    """
    made = getattr(module, "approver", None)
    if made is None or isinstance(made, Agent):
        return None
    if not callable(getattr(made, "refuses", None)):
        expected = "expected an Approver such as gesta.decide.approval.SignedApprovals({...})"
        raise BadAddress(f"`approver` in {place} is of type {type(made).__name__}, {expected}.")
    approver: Approver = made
    return approver


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or "\\" in place or os.path.isfile(place)  # noqa: PTH113 - it raises for no name


def _no_name(address: str) -> str:
    if not _is_file(address):
        return f"{address!r} names no agent. {FORM}"
    return f"{address!r} names a file, but no agent in it. {_listed(_agents(_file(address)), address)}"


def _agents(module: ModuleType) -> list[str]:
    names = list(vars(module).items())  # a copy, because a lazy value may add names when it is examined
    return [name for name, value in names if isinstance(value, Agent)]


def _listed(agents: list[str], place: str) -> str:
    if not agents:
        return "There is no agent in it: write agent = gesta.Agent(...)."
    return f"Agents in it: {', '.join(agents)}. Write {place}:{agents[0]}."


class _AsItStands(SourceFileLoader):
    """Loads a file from its source, and never from cached bytecode.

    Bytecode may be out of date if an edit kept the size of the file and was made in the same second.
    """

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return self.source_to_code(self.get_data(self.path), self.path)


def _file(place: str) -> ModuleType:
    """Import the file at the path `place`, and return the module.

    The imports in the file are searched in the file's folder first, as for a script.
    """
    path = Path(place)
    if not os.path.isfile(place):  # noqa: PTH113 - as above
        there = [each.name for each in path.parent.glob("*.py")] if os.path.isdir(path.parent) else []  # noqa: PTH112
        raise BadAddress(f"No file {place!r} in {Path.cwd()}.{nearest(path.name, there)} {FORM}")
    full = path.resolve()
    name = full.stem if full.stem.isidentifier() and full.stem not in sys.modules else f"_agent_file_{full.stem}"
    loader = _AsItStands(name, str(full)) if full.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, full, loader=loader)
    if spec is None or spec.loader is None:
        raise BadAddress(f"{place!r} is not a Python file. {FORM}")
    if str(full.parent) not in sys.path:
        sys.path.insert(0, str(full.parent))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadAddress(_broken(place, error)) from error
    return module


def _dotted(place: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with redirect_stdout(sys.stderr):
            return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            raise BadAddress(f"No module {error.name!r}. {FORM}") from error
        raise BadAddress(_broken(place, error)) from error
    except (Exception, SystemExit) as error:
        raise BadAddress(_broken(place, error)) from error


def _broken(place: str, error: BaseException) -> str:
    """Return the message for an import that failed, with the line of the user's code that caused the failure.

    Args:
        place: the file or module that was imported.
    """
    what = f"{place} does not import: {type(error).__name__}: {error}"
    if isinstance(error, SystemExit):
        what = f"{place} ended the program while it was imported. Put what runs it under `if __name__ == '__main__':`."
    where = _where(error)
    if where is None:
        return what
    file, number, line = where
    return f"{what}\n  {file}, line {number}:\n    {line.strip()}"


def _where(error: BaseException) -> tuple[str, int, str] | None:
    """Return file, line number and text of the last line of the user's own code in an error's traceback.

    Return `None` if no such line is known.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _shown(error.filename), error.lineno, error.text or linecache.getline(error.filename, error.lineno)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if not frames or frames[-1].lineno is None:
        return None
    return _shown(frames[-1].filename), frames[-1].lineno, frames[-1].line or ""


def _is_users(filename: str) -> bool:
    """Return whether a file belongs to the user: not to Gesta, not to a library, and not to Python itself."""
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    ours = Path(__file__).resolve().parents[1]
    return ours not in path.parents and not {"site-packages", "dist-packages"} & set(path.parts) and not _python(path)


def _python(path: Path) -> bool:
    return Path(importlib.__file__ or "").resolve().parents[1] in path.parents


def _shown(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if Path.cwd() in path.parents else filename
