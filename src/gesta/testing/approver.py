"""The tests that every approver must pass, as the class `ApproverContract`. The name of each test is a sentence.

An approver checks that an approval of a tool call was signed by the person whom it names.
"""
# ruff: noqa: D102 - the name of a test is its sentence

from datetime import UTC, datetime

from msgspec.structs import replace

from gesta.decide.approval import Approver, Asked
from gesta.kinds import ApprovalContent

ASKED = Asked(
    record="0" * 32,
    run="run-1",
    request=7,
    call=6,
    tool="pay",
    args={"to": "Ada", "amount": 5},
    expires=datetime(2026, 1, 2, tzinfo=UTC),
)
ANSWER = ApprovalContent(of=7, verdict="approved", by="ada")
OTHERS = (
    replace(ASKED, record="1" * 32),
    replace(ASKED, run="run-2"),
    replace(ASKED, request=9, call=8),
    replace(ASKED, tool="refund"),
    replace(ASKED, args={"to": "Ada", "amount": 500}),
)
TOKENS = ("", "0", "0" * 64, "ü", "\ud800", "\x00", "x" * 100_000)


class ApproverContract:
    """The tests that every approver must pass. Subclass it and define `make_approver` and `sign`."""

    def make_approver(self) -> Approver:
        """Return an approver that accepts approvals which the person `ada` signed."""
        raise NotImplementedError

    def sign(self, approval: ApprovalContent, asked: Asked) -> ApprovalContent:
        """Return the approval with a token that proves that the person `ada` signed it.

        Args:
            asked: the call that the approval is about.
        """
        raise NotImplementedError

    def test_what_was_signed_counts(self) -> None:
        assert self.refusal(self.sign(ANSWER, ASKED), ASKED) is None, "a signed approval is refused"

    def test_what_nobody_signed_is_refused_in_words(self) -> None:
        why = self.refusal(ANSWER, ASKED)
        assert why is not None, "an approval that nobody signed counts"
        assert why.strip(), "it is refused without a word"

    def test_a_token_of_one_call_fits_no_other(self) -> None:
        signed = self.sign(ANSWER, ASKED)
        for other in OTHERS:
            assert self.refusal(signed, other) is not None, f"an approval of another call counts for {other}"

    def test_a_token_of_one_answer_fits_no_other(self) -> None:
        denied, edited = replace(ANSWER, verdict="denied"), replace(ANSWER, args={"to": "Eve", "amount": 5})
        for said, heard in ((denied, ANSWER), (ANSWER, denied), (ANSWER, edited), (edited, ANSWER)):
            forged = replace(heard, token=self.sign(said, ASKED).token)
            assert self.refusal(forged, ASKED) is not None, f"the token of {said} counts for {heard}"

    def test_a_token_of_one_person_fits_no_other(self) -> None:
        forged = replace(self.sign(ANSWER, ASKED), by="eve")
        assert self.refusal(forged, ASKED) is not None, "an approval counts in the name of somebody else"

    def test_no_token_harms_it(self) -> None:
        for token in TOKENS:
            assert self.refusal(replace(ANSWER, token=token), ASKED) is not None, f"the token {token!r:.40} counts"

    def refusal(self, approval: ApprovalContent, asked: Asked) -> str | None:
        """Return the reason why the approver refuses an approval; `None` if the approver accepts the approval."""
        try:
            return self.make_approver().refuses(approval, asked)
        except Exception as error:
            raise AssertionError(f"expected a refusal, found {error!r}, of {approval!r:.200}") from error
