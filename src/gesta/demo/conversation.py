"""The conversation that the demo replays: four messages of a customer, and the model's replies.

The number of recorded replies chooses the next one, so after a crash the model continues with the right reply. There
are other replies for a session without a shop, and for a refund that a person denied. The token counts are typical for
such a conversation, but no tokens were bought.
"""

from collections.abc import Callable

import gesta
from gesta.decide.open_call import DENIED
from gesta.demo.shop import MISSING
from gesta.model.request import Model, Reply, ReplyCall, Request

MESSAGES = (
    "Hello, the reading lamp I ordered from you arrived with a broken shade. Can you help?",
    "Of course: marta.duarte@example.com",
    "Yes, please refund the lamp. I will keep the bulbs.",
    "Thank you, that is all.",
)
"""The customer's messages. The message with number i, from 0, is sent under the key `m{i}`."""

NAME = "replay:support"

NO_SHOP = (
    "I am sorry, I cannot reach the shop's books right now. (This session has no copy of the shop; `gesta demo` makes "
    "a new session with one.)"
)


def _said(text: str, tokens: tuple[int, int], *calls: ReplyCall) -> Reply:
    count = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    return gesta.reply(text, calls=calls, usage=count)


def _by_what_happened(usual: Reply, denied: Reply | None = None) -> Callable[[Request], Reply]:
    """Return a function that chooses the reply to a request.

    Args:
        usual: the ordinary reply. If the session has no shop, a reply that says so is chosen instead.
        denied: the reply if a person denied the refund.
    """

    def choose(request: Request) -> Reply:
        if any(MISSING.encode() in block for block in request.blocks):
            return _said(NO_SHOP, (640, 38))
        if denied is not None and any(DENIED.encode() in block for block in request.blocks):
            return denied
        return usual

    return choose


def model(pause_s: float = 0.0) -> Model:
    """Return the model that replays the conversation.

    Args:
        pause_s: seconds to wait before each piece of a text, so that a person sees it stream.
    """
    return gesta.scripted(
        _said("I am sorry to hear that. Which email address did you order with?", (486, 15)),
        _said("", (522, 19), gesta.call("find_customer", email="marta.duarte@example.com")),
        _by_what_happened(_said("", (648, 41), gesta.call("order_status", order_id=1017), gesta.call("refund_policy"))),
        _by_what_happened(
            _said(
                "Thank you, Marta. That is order 1017, delivered on 24 May: one brass reading lamp and two LED bulbs. "
                "Goods that arrive damaged are refunded in full, and you need not send the lamp back. "
                "Shall I refund the 64.90 euros for it to your card ending 4417?",
                (846, 64),
            )
        ),
        _by_what_happened(
            _said(
                "",
                (931, 34),
                gesta.call("refund", order_id=1017, amount="64.90", reason="broken shade"),
            )
        ),
        _by_what_happened(
            _said(
                "Done: 64.90 euros are on their way to your card ending 4417. That takes three to five working days. "
                "Is there anything else?",
                (1009, 35),
            ),
            _said(
                "I asked for the refund, and my colleague did not approve it, so nothing has been paid back. "
                "I am sorry that I have no better news today. Is there anything else?",
                (994, 37),
            ),
        ),
        _by_what_happened(
            _said("You are welcome, Marta. Enjoy the bulbs, and have a good day.", (1062, 18)),
            _said("You are welcome, Marta. I am sorry again about the lamp.", (1049, 15)),
        ),
        name=NAME,
        pause_s=pause_s,
    )
