"""Commands that tell a run something from outside: `approve`, `resolve`, `cancel`."""

from gesta.cli.app import command
from gesta.cli.options import AnswerOptions, ApproveOptions, CancelOptions, ResolveOptions


@command(ApproveOptions, example="gesta approve last")
def approve(options: ApproveOptions) -> None:
    """Allow a call that waits for a person, or --deny it.

    This only writes the answer to the run's inbox; `gesta resume` continues the run.

    The name in --by is a claim, and nothing checks it: a model with a shell can approve its own calls. Where the
    agent's file names an `approver`, as gesta.decide.approval.SignedApprovals, an answer without a token does not
    count.
    """
    from gesta.cli import letters

    letters.approve(options)


@command(AnswerOptions, example="gesta answer last 'The blue one'")
def answer(options: AnswerOptions) -> None:
    """Answer a question that a run waits for.

    This only writes the answer to the run's inbox; `gesta resume` or `gesta work` continues the run.
    """
    from gesta.cli import letters

    letters.answer(options)


@command(ResolveOptions, example="gesta resolve last done --result '{\"sent\": true}'")
def resolve(options: ResolveOptions) -> None:
    """Settle a call whose outcome is unknown.

    done: it happened, with --result if the model should read one. failed: it did not happen. retry: try it again.
    """
    from gesta.cli import letters

    letters.resolve(options)


@command(CancelOptions, example="gesta cancel last --reason 'no longer needed'")
def cancel(options: CancelOptions) -> None:
    """End the open turn of a run."""
    from gesta.cli import letters

    letters.cancel(options)
