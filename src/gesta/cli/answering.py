"""Commands that send an answer or a signal to a run: `approve`, `answer`, `resolve`, `cancel`.

A run is one conversation of an agent. A turn is one message with all that follows until its answer. An inbox holds the
messages that the run has not read yet. The docstrings are help texts.
"""

from gesta.cli.app import command
from gesta.cli.options import AnswerOptions, ApproveOptions, CancelOptions, ResolveOptions


@command(ApproveOptions, example="gesta approve last")
def approve(options: ApproveOptions) -> None:
    """Allow a call that waits for a person, or --deny it.

    The command only writes the answer to the run's inbox; `gesta resume` continues the run.

    Nothing checks the name in --by: a model with a shell can approve its own calls. If the agent's file has an object
    named `approver`, such as a gesta.decide.approval.SignedApprovals, an answer without a token does not count.
    """
    from gesta.cli import letters

    letters.approve(options)


@command(AnswerOptions, example="gesta answer last 'The blue one'")
def answer(options: AnswerOptions) -> None:
    """Answer a question that a run waits for.

    The command only writes the answer to the run's inbox; `gesta resume` or `gesta work` continues the run.
    """
    from gesta.cli import letters

    letters.answer(options)


@command(ResolveOptions, example="gesta resolve last done --result '{\"sent\": true}'")
def resolve(options: ResolveOptions) -> None:
    """Record what became of a call whose outcome is unknown.

    done: the effect happened; --result is what the model reads. failed: the effect did not happen. retry: try the call
    again.
    """
    from gesta.cli import letters

    letters.resolve(options)


@command(CancelOptions, example="gesta cancel last --reason 'no longer needed'")
def cancel(options: CancelOptions) -> None:
    """End the open turn of a run."""
    from gesta.cli import letters

    letters.cancel(options)
