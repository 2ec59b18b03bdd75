# One recipe for each check; CI calls the same ones. `just --list` shows them.

# The active virtual environment comes first, else `.venv` of this folder.
venv := env("VIRTUAL_ENV", justfile_directory() / ".venv")
export PATH := venv / "bin:" + env("PATH")
# Bytecode is kept, also where a container forbids it: without it every test process compiles all files again.
export PYTHONDONTWRITEBYTECODE := ""

# everything that a change must pass
default: format-check lint types typos test docs

# rewrite the files in the one format, and mend what ruff can mend
fmt:
    ruff format
    ruff check --fix

# is every file in the one format?
format-check:
    ruff format --check

# ruff's rules, and a pin for every dependency
lint:
    ruff check
    .ci/pins.py

# mypy, strict on src; pyright on the examples, as a user's editor would read them; both on programs of users
types:
    mypy
    if [ -d examples ]; then pyright; fi
    python -m pytest --quiet tests/test_typed.py

# spelling, in code and prose
typos:
    typos

# the quick tests, or those that are named, whole: `just test tests/laws`
test *args="tests":
    python -m pytest -n 2 {{ args }}

# imports and budgets alone
shape:
    python -m pytest tests/test_shape.py

# all tests as `.ci/run` has them: slow ones, and all cases of sampled ones, too
ci:
    GESTA_TESTS=ci python -m pytest -n 2

# all tests, with a thousand examples for each property
full:
    GESTA_TESTS=full python -m pytest -n 2

# options of commands that no test and no page ever passes: places to look
untried:
    .ci/untried.py

# every branch of the four files on which everything rests
cover:
    GESTA_TESTS=ci python -m pytest -n 2 --cov --cov-report=
    coverage report --fail-under=100 --skip-empty \
        --include='src/gesta/codec/rows.py,src/gesta/prompt.py,src/gesta/decide/move.py,src/gesta/perform/move.py'

# the pages, where a broken link is an error
docs:
    mkdocs build --strict --quiet

# wheel and sdist: built twice and compared, then the wheel alone, with no extra and no file of this folder, is tried
smoke:
    .ci/release.py --short

# what a release consists of, checked, in dist/; uploads nothing. `just release --rehearsal` goes on in an unready tree
release *args:
    .ci/release.py {{ args }}

# the record of this version, which each later release has to read, under tests/fixtures/
keep-record:
    python -m tests.kept

# readers are given what a stranger might give them: `just fuzz --full`
fuzz *args="--quick":
    python -m benchmarks.fuzz {{ args }}

# every benchmark, a script or a package with a `__main__`; each prints its own numbers
bench:
    #!/usr/bin/env bash
    set -euo pipefail
    shopt -s nullglob
    for file in benchmarks/[!_]*.py benchmarks/*/__main__.py; do
        module=${file%.py}
        module=${module%/__main__}
        echo "== $module"
        python -m "${module//\//.}"
    done

# other systems, for `python -m benchmarks.targets --peers`; in an environment of their own, one by one
peers:
    #!/usr/bin/env bash
    set -euo pipefail
    python3 -m venv .peers
    python -c "import tomllib; from pathlib import Path; \
    print(*tomllib.loads(Path('pyproject.toml').read_text())['project']['optional-dependencies']['bench'], sep='\n')" |
        while read -r each; do
            .peers/bin/python -m pip install --quiet -c benchmarks/peers.txt "$each" || echo "not installed: $each"
        done

# The peers of some tests raise httpx2, pydantic and uvicorn above what users may have, so it runs without them too.
# the tests on the lowest versions that pyproject.toml allows
lowest *args="tests":
    #!/usr/bin/env bash
    set -euo pipefail
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    peers='openai|genai[-_]prices|mcp|fastapi'
    python -c "import tomllib; from pathlib import Path; \
    project = tomllib.loads(Path('pyproject.toml').read_text())['project']; \
    print(*project['dependencies'], *project['optional-dependencies']['test'], sep='\n')" > "$work/with"
    grep -vE "^($peers)" "$work/with" > "$work/without"
    for each in with without; do
        echo "lowest: $each peers"
        uv venv --quiet "$work/$each.venv"
        uv pip install --quiet --python "$work/$each.venv" --resolution lowest-direct -r "$work/$each"
        uv pip install --quiet --python "$work/$each.venv" --no-deps -e .
        ignored=$([ $each = with ] || grep -rlE "^ *(import|from) ($peers)\b" tests | sed 's/^/--ignore=/')
        # shellcheck disable=SC2086
        GESTA_TESTS=ci VIRTUAL_ENV="$work/$each.venv" "$work/$each.venv/bin/python" -m pytest -n 2 $ignored {{ args }}
    done

# the pages on coming from other libraries, tried on those libraries, in throw-away environments
coming-from:
    .ci/originals
    .ci/originals kodeagent
    .ci/originals trustgraph

# write constraints.txt anew, with the newest versions that pyproject.toml allows
pins:
    #!/usr/bin/env bash
    set -euo pipefail
    head=$(sed '/^[^#]/,$d' constraints.txt)
    extras=$(python -c "import tomllib; from pathlib import Path; \
    print(*(f'--extra {each}' for each in \
    tomllib.loads(Path('pyproject.toml').read_text())['project']['optional-dependencies'] if each != 'bench'))")
    # shellcheck disable=SC2086
    pins=$(echo hatchling | uv pip compile --quiet --universal --upgrade --python-version 3.11 $extras \
        --no-header --no-annotate pyproject.toml -)
    printf '%s\n%s\n' "$head" "$pins" > constraints.txt

# remove what tools leave behind
clean:
    rm -rf build dist site htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
    find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
