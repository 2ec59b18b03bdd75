"""Answers requests in which people approve or deny calls, answer questions, resolve doubts, or cancel turns.

A run is the recorded conversation or task of one agent. A turn is one message to it and all the work up to its answer.
A doubt is a call that may or may not have had its effect. The client names the person. The record (the store of all
runs) gets that name, together with the name of the client's token.
"""

from typing import Literal, cast

from starlette.requests import Request
from starlette.responses import Response

from gesta.decide.waiting import Waiting
from gesta.errors import NoRun
from gesta.record.answers import Receipt
from gesta.record.names import exact_run, run_of_id
from gesta.serve.access import ANYBODY
from gesta.serve.bodies import Answer, Approval, Cancellation, Refused, Resolution, answered, read, shown
from gesta.serve.service import Service
from gesta.text.redactor import SECRETS

VERDICTS = ("done", "failed", "retry")


def who(request: Request, by: str | None) -> str:
    """Return the name to record for a request: `PERSON via CLIENT`, or only one of them if the other is unknown.

    Args:
        by: the person whom the client names.
    """
    client: str = request.state.client
    if by is None or client == ANYBODY:
        return by or client
    return f"{by} via {client}"


async def approve(request: Request, service: Service) -> Response:
    """Approve one call of a tool, and continue the run."""
    return await _decide(request, service, allowed=True)


async def deny(request: Request, service: Service) -> Response:
    """Deny one call of a tool: it does not run, the model reads the reason, and the run continues."""
    return await _decide(request, service, allowed=False)


async def _decide(request: Request, service: Service, *, allowed: bool) -> Response:
    said, run = await read(request, Approval), await found(request, service)
    by, record, about = who(request, said.by), service.record, await meant(service, run, said.waiting, said.call)
    if allowed:
        receipt = await record.approve(about, said.call, by=by, args=said.args, reason=said.reason, token=said.token)
    elif said.args is not None:
        raise Refused(400, "BadRequest", "A call that is denied does not run, so it takes no args.")
    else:
        receipt = await record.deny(about, said.call, by=by, reason=said.reason, token=said.token)
    return _heard(service, run, receipt)


async def answer(request: Request, service: Service) -> Response:
    """Answer a question, and continue the run."""
    said, run = await read(request, Answer), await found(request, service)
    about = await meant(service, run, said.waiting, None)
    receipt = await service.record.answer(about, said.value, said.question, by=who(request, said.by))
    return _heard(service, run, receipt)


async def resolve(request: Request, service: Service) -> Response:
    """Record a person's decision about a tool call whose outcome is unknown, and continue the run."""
    said, run = await read(request, Resolution), await found(request, service)
    if said.verdict not in VERDICTS:
        raise Refused(400, "BadRequest", f"verdict is {said.verdict!r:.40}, expected one of {', '.join(VERDICTS)}.")
    verdict = cast("Literal['done', 'failed', 'retry']", said.verdict)
    about = await meant(service, run, said.waiting, said.call)
    receipt = await service.record.resolve(about, verdict, said.call, by=who(request, said.by), result=said.result)
    return _heard(service, run, receipt)


async def cancel(request: Request, service: Service) -> Response:
    """End the unfinished turn of a run. A running turn ends only at its next step: `outcome` is null then."""
    said, run = await read(request, Cancellation), await found(request, service)
    about = await meant(service, run, said.waiting, None)
    outcome = await service.record.cancel(about, by=who(request, said.by), reason=said.reason)
    return answered({"run": run, "outcome": shown(outcome) if outcome is not None else None})


async def found(request: Request, service: Service) -> str:
    """Return the id of the run that a request's path names: by its whole id, or by its session.

    A prefix of an id names no run here. A program that makes the path from a name of its own would reach another run.
    Raises NoRun, without the names of other runs, if there is no such run.
    """
    name = SECRETS.text(request.path_params["run"])
    row = await exact_run(service.record.store, name)
    if row is None:
        raise NoRun(name)
    return row.run


async def meant(service: Service, run: str, waiting: Waiting | None, call: int | None) -> Waiting | str:
    """Return what a person's word is about: the wait that the person was shown, else the run in the request's path.

    Raises Refused if the wait is of another session than the run, or of another call.
    """
    if waiting is None:
        return run
    rows = [await found(service.record.store, each) for found, each in ((exact_run, run), (run_of_id, waiting.run))]
    same = rows[0] is not None and rows[1] is not None and rows[0].session == rows[1].session
    if not same or call not in (None, waiting.call):
        raise Refused(400, "BadRequest", "`waiting` is of another run or call than the request names.")
    return waiting


def _heard(service: Service, run: str, receipt: Receipt) -> Response:
    """Continue the run in the background, and return the response to a person's decision or answer."""
    service.go_on(receipt.root)
    return answered({"run": run, "new": not receipt.again}, 202)
