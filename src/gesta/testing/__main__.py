"""`python -m gesta.testing FILE.py:agent "message"` kills an agent's process before and after each of its writes."""

from gesta.testing.crashes.command import main

if __name__ == "__main__":
    raise SystemExit(main())
