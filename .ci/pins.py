#!/usr/bin/env python3
"""Every dependency that pyproject.toml names has a pin in constraints.txt, inside its bounds."""

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

root = Path(__file__).resolve().parents[1]
pins = {}
for line in (root / "constraints.txt").read_text().splitlines():
    if line and not line.startswith("#"):
        pin = Requirement(line)
        pins[canonicalize_name(pin.name)] = str(pin.specifier).removeprefix("==")

pyproject = tomllib.loads((root / "pyproject.toml").read_text())
wanted = [*pyproject["build-system"]["requires"], *pyproject["project"]["dependencies"]]
for extra in pyproject["project"]["optional-dependencies"].values():
    wanted += extra

problems = []
for requirement in map(Requirement, wanted):
    found = pins.get(canonicalize_name(requirement.name))
    if found is None:
        problems.append(f"constraints.txt: no pin for {requirement}; write it with `just pins`")
    elif not requirement.specifier.contains(found):
        problems.append(
            f"constraints.txt: {requirement.name}=={found} is outside {requirement}; mend it with `just pins`"
        )
sys.exit("\n".join(problems) or 0)
