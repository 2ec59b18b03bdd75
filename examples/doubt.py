"""A payment exceeds its timeout. Nobody knows whether it will still happen, so it is not made a second time.

The program asks the bank about the key of the call. The bank knows of no payment, but the first one may still be on its
way, so the turn waits. When the payment arrives after all, its own result ends the wait.

Prints:
    bank asked: it knows of no payment
    the turn waits for: doubt
    the payment arrives
    answer: Your 5 euros are on their way.
    payments made: 1
"""

import threading

import gesta

PAID: dict[str, int] = {}  # payments that reached the bank, by idempotency key
AT_WORK: list[threading.Thread] = []
arrives = threading.Event()


def ask_bank(key: str) -> gesta.Done | gesta.NotDone:
    """Return whether the bank has a payment with this key."""
    print("bank asked:", "it was made" if key in PAID else "it knows of no payment")
    return gesta.Done(PAID[key]) if key in PAID else gesta.NotDone()


@gesta.tool(effect="once", timeout_s=0.1, reconcile=ask_bank)
def pay(cents: int, context: gesta.Context) -> int:
    """Pay a customer."""
    AT_WORK.append(threading.current_thread())
    arrives.wait(60)  # the network is slow
    PAID[context.key] = cents
    return cents


model = gesta.scripted(gesta.call("pay", cents=500), "Your 5 euros are on their way.")
agent = gesta.Agent("clerk", model=model, tools=[pay])

if __name__ == "__main__":
    outcome = gesta.run_sync(agent, "My money, please.", record="bank.gesta", session="anna", key="m1")
    print("the turn waits for:", outcome.waiting[0].what)
    print("the payment arrives")
    arrives.set()
    AT_WORK[0].join()
    outcome = gesta.run_sync(agent, "My money, please.", record="bank.gesta", session="anna", key="m1")
    print("answer:", outcome.answer)
    print("payments made:", len(PAID))
