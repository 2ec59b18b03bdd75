#!/usr/bin/env python3
"""Every dependency that pyproject.toml names has a pin inside its bounds: in constraints.txt, peers in a file apart."""

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

root = Path(__file__).resolve().parents[1]


def read(path: str) -> dict[str, str]:
    """Versions by name."""
    lines = [line for line in (root / path).read_text().splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in map(Requirement, lines)}


pyproject = tomllib.loads((root / "pyproject.toml").read_text())
wanted = [*pyproject["build-system"]["requires"], *pyproject["project"]["dependencies"]]
extras = pyproject["project"]["optional-dependencies"]
peers = extras.pop("bench")
for extra in extras.values():
    wanted += extra

problems = []
for path, mend, needed in (("constraints.txt", "`just pins`", wanted), ("benchmarks/peers.txt", "pip freeze", peers)):
    pins = read(path)
    for requirement in map(Requirement, needed):
        found = pins.get(canonicalize_name(requirement.name))
        if found is None:
            problems.append(f"{path}: no pin for {requirement}; write it with {mend}")
        elif not requirement.specifier.contains(found):
            problems.append(f"{path}: {requirement.name}=={found} is outside {requirement}; mend it with {mend}")
sys.exit("\n".join(problems) or 0)
