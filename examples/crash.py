"""A process is killed right after a payment. Run again, the program looks the payment up instead of repeating it.

Prints:
    first process ended with -9
    transfers in the ledger: 1
    The rent is paid.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import gesta

LEDGER = Path("ledger.txt")


def done(key: str) -> gesta.Done | gesta.NotDone:
    """Return whether the ledger has the transfer with this key."""
    found = LEDGER.exists() and key in LEDGER.read_text()
    return gesta.Done("transferred") if found else gesta.NotDone()


@gesta.tool(effect="once", reconcile=done)
def transfer(cents: int, context: gesta.Context) -> str:
    """Transfer money."""
    with LEDGER.open("a") as ledger:
        ledger.write(f"{context.key} {cents}\n")
    if "--die" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return "transferred"


model = gesta.scripted(gesta.call("transfer", cents=90_000), "The rent is paid.")
agent = gesta.Agent("clerk", model=model, tools=[transfer])


def main() -> str | None:
    """Send a message under a key. If the program was killed, the next call with this key continues the same turn."""
    return gesta.run_sync(agent, "Pay the rent.", record="rent.gesta", session="rent", key="m0").answer


if __name__ == "__main__":
    if "--die" not in sys.argv:
        child = subprocess.run([sys.executable, __file__, "--die"], check=False)
        print("first process ended with", child.returncode)
        answer = main()
        print("transfers in the ledger:", len(LEDGER.read_text().splitlines()))
        print(answer)
    else:
        main()
