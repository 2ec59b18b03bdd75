"""Decides whether an approval is valid: it came before its request expired, and the program's Approver accepts it.

An approval is a person's decision whether a tool call may run. The name in it proves nothing: whoever can send a
message to a run can write any name. An `Approver` checks who approves. The program passes the Approver to `gesta.open`;
neither the Approver nor its keys are ever read from the record. Each approval is judged once, when it becomes an entry
of the run. The entry stores the judgement in `sent_at` and `refused`. `SignedApprovals` is an Approver that requires a
signature over the call, its arguments and the answer.
"""

import copy
import hmac
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gesta.codec.rows import as_recorded, canonical, digest_of
from gesta.entry import fold, utc_text, utc_time
from gesta.errors import AgentError, message_of
from gesta.kinds import ApprovalContent
from gesta.log.journal import read
from gesta.state.calls import OpenCall
from gesta.state.run import RunView
from gesta.store import Letter, Store
from gesta.text.redactor import SECRETS

KEY_BYTES = 16
"""Smallest number of bytes of a key."""
FORM = "gesta approval 1"  # to be changed whenever other facts are signed, so that old tokens do not fit


class Asked(Struct, frozen=True, kw_only=True):
    """The one tool call that a person is asked about. An approval allows this call only."""

    record: str
    """Id of the record."""
    run: str
    request: int
    """Seq of the approval-request."""
    call: int
    """Seq of the tool call."""
    tool: str
    args: dict[str, Any]
    """The arguments that the model made."""
    expires: datetime | None = None

    @classmethod
    def of(cls, call: OpenCall, run: str, record: str) -> "Asked":
        """Return the facts about a call that a person is asked to approve.

        Args:
            call: a call that waits for approval.
            run: id of the run.
            record: id of the record.
        """
        assert call.asked is not None, f"nobody was asked about call {call.seq}"
        return cls(
            record=record,
            run=run,
            request=call.asked,
            call=call.seq,
            tool=call.name,
            args=call.args,
            expires=call.expires,
        )

    @property
    def args_digest(self) -> str:
        """SHA-256 of the call's arguments as canonical JSON, in hex. The approval-request stores the same digest."""
        return digest_of(self.args)


class Approver(Protocol):
    """The interface of an object that checks who approved a tool call, and may reject the approval."""

    def refuses(self, approval: ApprovalContent, asked: Asked) -> str | None:
        """Return why an approval is rejected; `None` if it is accepted. Any other value rejects it too.

        The method is called in the event loop, so it must not block. It gets copies.
        """


def judged_approval(
    approval: ApprovalContent, letter: Letter, calls: Iterable[OpenCall], record: str, approver: Approver | None
) -> ApprovalContent:
    """Return a copy of an approval with the time of its arrival and, if it is rejected, the reason.

    Args:
        letter: the message that held the approval. In a replay it has no time, because the approval was judged in the
            original run.
        calls: the calls of the run that have no result.
        record: id of the record.
        approver: checks who approved; `None` if the name in an approval is believed.
    """
    if not letter.at:
        return approval
    approval = replace(approval, sent_at=utc_time(letter.at), refused=None)
    call = next((call for call in calls if call.asked == approval.of), None)
    if call is None:
        return approval
    about = Asked.of(call, letter.run, record)
    return replace(approval, refused=_expired(letter.at, about) or _refused(approval, about, approver))


def _expired(at: str, about: Asked) -> str | None:
    if about.expires is None or utc_time(at) < about.expires:
        return None
    return f"It came at {at}, and the request had expired at {utc_text(about.expires)}."


def _refused(approval: ApprovalContent, about: Asked, approver: Approver | None) -> str | None:
    if approver is None:
        return None
    try:
        why: Any = approver.refuses(copy.deepcopy(approval), copy.deepcopy(about))  # a changed copy changes no call
    except Exception as failure:  # noqa: BLE001 - an approval that cannot be checked does not count
        return f"The Approver raised {type(failure).__name__}: {message_of(failure)}"
    if why is None or (isinstance(why, str) and why):
        return why
    found = "an empty text" if why == "" else f"a value of type {type(why).__name__}"
    return f"The Approver returned {found}, expected None or a text that says why. Its method is not awaited."


async def asked(store: Store, run: str) -> list[Asked]:
    """Return the calls of a run that wait for approval, in order, each as an `Asked`. Cost: reads the whole run."""
    state = fold(RunView(), await read(store, run))
    waiting = (call for call in state.calls.values() if call.awaits_approval)
    return [Asked.of(call, run, store.info.id) for call in waiting]


def sign(approval: ApprovalContent, asked: Asked, key: bytes) -> ApprovalContent:
    """Return a copy of the approval with a signature (`token`), which is valid only for this answer to this request.

    Raises AgentError if the key is not bytes, or too short.

    Source: RFC 2104 (HMAC) over SHA-256.
    """
    approval = as_recorded(approval)
    return replace(approval, token=_token(approval, asked, _checked_key(approval.by, key)))


def _token(approval: ApprovalContent, about: Asked, key: bytes) -> str:
    """Return the signature of an approval, in hex.

    The signature covers the approval-request, and all that the person answered.
    """
    expires = utc_text(about.expires) if about.expires is not None else None
    call = [about.record, about.run, about.request, about.call, about.tool, about.args_digest, expires]
    args = digest_of(approval.args) if approval.args is not None else None
    answer = [approval.verdict, approval.by, args, approval.reason, digest_of(approval.result)]
    return hmac.new(key, canonical([FORM, *call, *answer]), "sha256").hexdigest()


def _checked_key(name: str, key: bytes) -> bytes:
    """Check a key, register it as a secret and return it. Raises AgentError for a value that cannot be a key.

    Args:
        name: the person whose key it is.
    """
    if not isinstance(key, bytes):
        found = f"is of type {type(key).__name__}, expected bytes: bytes.fromhex(...) reads one from text."
        raise AgentError(f"The key of {name!r} {found}")
    if len(key) < KEY_BYTES:
        found = f"has {len(key)} bytes, expected at least {KEY_BYTES}: secrets.token_bytes(32) makes one."
        raise AgentError(f"The key of {name!r} {found}")
    for text in (key.hex(), key.hex().upper(), key.decode("ascii", "replace")):
        SECRETS.add(f"approval-key-{name}", text)
    return key


class SignedApprovals:
    """An Approver that accepts only approvals signed by `sign` with the key of the person whom the approval names."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        """Check and store the keys. Raises AgentError if there are none, or if one is too short or not bytes.

        Args:
            keys: for each name in `ApprovalContent.by`, a key of at least 16 bytes.
        """
        if not keys:
            raise AgentError(
                "SignedApprovals has no keys, so that nobody could approve anything. Give it one for each name."
            )
        self._keys = {name: _checked_key(name, key) for name, key in keys.items()}

    def __eq__(self, other: object) -> bool:
        """Return whether the other object is a `SignedApprovals` with the same keys for the same names."""
        return isinstance(other, SignedApprovals) and self._keys == other._keys

    def __hash__(self) -> int:
        """Return a hash of the persons' names."""
        return hash(frozenset(self._keys))

    def refuses(self, approval: ApprovalContent, asked: Asked) -> str | None:
        """Return why an approval is rejected; `None` if its token is right. Tokens are compared in constant time."""
        if approval.token is None:
            return (
                "It has no token, and this program counts signed approvals alone. "
                "Set GESTA_APPROVAL_KEY for `gesta approve`, or pass --token-file."
            )
        key = self._keys.get(approval.by)
        if key is None:
            return f"The program has no key of {approval.by!r}."
        token = approval.token.encode("utf-8", "surrogatepass")
        if hmac.compare_digest(token, _token(approval, asked, key).encode()):
            return None
        return (
            "Its token was made for another call or another answer, or with another key. "
            "Sign exactly what is asked: gesta.decide.approval.asked(record.store, run) reads it."
        )
