"""Unusual command lines: every command with strange words, on a record that is not damaged."""

import os
from random import Random

from benchmarks.fuzz.commands import command, every_command
from benchmarks.fuzz.mutating import spoilt
from benchmarks.fuzz.records import Samples

WORDS = (
    *(
        "last",
        "desk",
        "kinds",
        "nobody",
        "",
        " ",
        "-",
        "--",
        "-1",
        "0",
        "1",
        "99999999999999999999",
        "1.5",
        "nan",
        "inf",
    ),
    *("\ud800", "\x00", "\x1b[31m", "\u202eabc", "🙂", "é" * 300, "x" * 5000, "../..", "/", ".", "~", "*", "a.gesta"),
    *("sample.gesta", "missing.gesta", "spoilt.gesta", ":memory:", "agent.py:agent", "no.py:x", "a:b", "openai:x"),
    *("{}", "[]", "null", '{"a": 1}', "[" * 5000, '"\\ud800"', "1e999", "SELECT 1", "SELECT x'ff'", "DELETE FROM runs"),
    *("30d", "2026-01-01", "tomorrow", "tool", "day", "gesta", "trig", "json", "tsv", "--json", "--help", "--nothing"),
    *("postgresql://", "postgresql://u:p@127.0.0.1:1/x?connect_timeout=1", "done", "retry", "activity", "steps"),
)
LEFT_OUT = {"demo", "work", "models", "serve", "view"}
"""Commands that run until they are stopped, or that contact other machines."""
LASTING = {"--follow", "-f", "--port", "--debug"}


def line(lot: Random, samples: Samples) -> list[str]:
    """Return a random command line."""
    known = every_command().commands
    name = lot.choice(sorted(set(known) - LEFT_OUT))
    options = [each for option in known[name].params for each in option.opts if each.startswith("-")]
    options = [each for each in options if each not in LASTING]
    words = [name]
    for _ in range(lot.choice((0, 1, 1, 2, 3, 5))):
        if options and lot.random() < 0.4:
            words.append(lot.choice(options))
        run, seq = lot.choice(samples.ids)
        words.append(lot.choice((*WORDS, *WORDS, run, run[:4], f"{run}.{seq}", f"{run}.999999999999999999999")))
        if lot.random() < 0.1:
            data = spoilt(lot, words[-1].encode("utf-8", "replace"))[:2000]
            words[-1] = data.decode("utf-8", "surrogateescape")
    if lot.random() < 0.8 and "--record" in options:
        words += ["--record", "spoilt.gesta"]
    return words


def typed(lot: Random, samples: Samples) -> str:
    """Run a random command line, and return its exit code as text."""
    path = samples.copy()
    os.chdir(path.parent)
    (path.parent / "agent.py").write_text("import gesta\nagent = gesta.Agent('desk', model=gesta.scripted('Hello.'))\n")
    return f"code {command(*line(lot, samples), answer='y').code}"
