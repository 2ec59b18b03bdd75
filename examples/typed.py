"""An answer of a given type. A reply that does not fit is returned to the model, and the program gets a Python object.

Prints:
    told: The answer does not fit: Invalid enum value 'money' - at `$.topic`, expected one of 'other', 'refund'
    value: Ticket(topic='refund', order=1017, urgent=True)
"""

from dataclasses import dataclass
from typing import Literal

import gesta


@dataclass
class Ticket:
    """A customer's request."""

    topic: Literal["refund", "other"]
    order: int
    urgent: bool = False


REPLIES = (
    '{"topic": "money", "order": "1017"}',
    '```json\n{"topic": "refund", "order": 1017, "urgent": true}\n```',
)


def main() -> None:
    """Read a mail, and print what the model was told about its first reply."""
    agent = gesta.Agent("reader", model=gesta.scripted(*REPLIES), output=Ticket)
    mail = "My lamp (order 1017) came broken. I need my money back today!"
    outcome = gesta.run_sync(agent, mail, record="mail.gesta", session="mail")
    with gesta.open_sync("mail.gesta") as record:
        for entry in record.read(outcome.run):
            if isinstance(entry.content, gesta.kinds.SystemContent):
                print("told:", entry.content.value)
    print("value:", outcome.value)


if __name__ == "__main__":
    main()
