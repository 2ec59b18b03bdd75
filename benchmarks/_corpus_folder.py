"""Where the corpus lies, for the benchmarks that read it: `--corpus`, else GESTA_CORPUS, else beside the repository."""

import argparse
import os
from pathlib import Path

BESIDE_US = Path(__file__).resolve().parents[1] / "../shared/corpus"


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the folder of the corpus."""
    parser.add_argument("--corpus", type=Path, help="by default GESTA_CORPUS, else shared/corpus beside the repository")


def corpus_at(given: Path | None) -> Path | None:
    """Return the folder of the corpus; if none was given and there is none, print that and return `None`."""
    root = (given or Path(os.environ.get("GESTA_CORPUS") or BESIDE_US)).resolve()
    if not root.is_dir() and given is None:
        print(f"SKIPPED: no corpus at {root}; set GESTA_CORPUS to its folder")
        return None
    return root
