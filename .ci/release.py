#!/usr/bin/env python3
"""Build what a release consists of, check it, and upload nothing: wheel, sdist, bill of materials, digests.

`just release` builds from a clone of HEAD, tries the wheel on every Python that is found, and fills `dist/`.
`just smoke` (`--short`) builds from the working tree, tries the wheel on the newest Python, and leaves nothing.
`--rehearsal` goes on although the tree is not ready to be released, and says why it is not.
Each environment lies in a temporary folder; `uv` makes them, and is in the extra `lint`.
"""

import argparse
import email
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import NoReturn

import pythons

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION: str = PROJECT["version"]
ELSEWHERE = {"TZ": "Asia/Kolkata", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
"""Settings of the second build; it also has another folder and another umask."""
ALONE = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "error", "TERM": "dumb"}
"""The environment variables in which the installed wheel is tried, beside HOME and PATH."""


def stop(found: str) -> NoReturn:
    """End with a message that says what was found."""
    sys.exit(f"release: {found}")


def told(step: str) -> None:
    """Print what is done now, with the seconds since the start."""
    print(f"release: {time.perf_counter() - START:5.1f} s  {step}", flush=True)


def run(*words: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None, umask: int = 0o022) -> str:
    """Run a program and return what it prints; stop with all of its output if it fails."""
    done = subprocess.run(
        words, cwd=cwd, env=env, umask=umask, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        stop(f"`{' '.join(map(str, words))}` ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def tracked(tree: Path = ROOT) -> list[str]:
    """Return the files that git knows and that are there, as paths from the root of the tree."""
    names = run("git", "ls-files", "-z", cwd=tree).split("\0")
    return sorted(name for name in names if name and (tree / name).is_file())


def committed() -> str:
    """Return when HEAD was committed, in seconds: the date of all that is built from it."""
    return run("git", "log", "-1", "--format=%ct").strip()


# ------------------------------------------------------------------------------------------------ before the build


def unready() -> list[str]:
    """Return why this tree is no release: changes, a version in the making, a changelog or a record that lacks it."""
    found = []
    if changed := run("git", "status", "--porcelain").strip():
        found.append(f"files are not committed:\n{changed}")
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", VERSION):
        found.append(f"the version in pyproject.toml is {VERSION}; a release is called X.Y.Z, or X.Y.ZrcN")
    top = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    dated = re.fullmatch(re.escape(VERSION) + r", (\d{4}-\d\d-\d\d)", top[1] if top else "")
    if dated is None:
        found.append(f"CHANGELOG.md begins with {top and top[1]!r}; expected `## {VERSION}, {date.today()}`")  # noqa: DTZ011
    if not list((ROOT / "tests/fixtures" / VERSION).glob("*.gesta")):
        found.append(
            f"tests/fixtures/{VERSION}/ has no record; `just keep-record` makes one, for later releases to read"
        )
    tag = f"v{VERSION}"
    if run("git", "tag", "--list", tag).strip() and run("git", "rev-parse", f"{tag}^{{}}") != run(
        "git", "rev-parse", "HEAD"
    ):
        found.append(f"the tag {tag} is at another commit")
    return found


# ---------------------------------------------------------------------------------------------------------- build


def environment(folder: Path, python: str | Path, *wanted: str | Path) -> Path:
    """Make a fresh environment and install into it; return its Python."""
    run("uv", "venv", "--quiet", "--no-project", "--python", python, folder)
    if wanted:
        run(
            "uv",
            "pip",
            "install",
            "--quiet",
            "--python",
            folder,
            *wanted,
            env={**os.environ, "VIRTUAL_ENV": str(folder)},
        )
    return folder / "bin/python"


def built(
    python: Path, tree: Path, targets: Sequence[str], more: dict[str, str], umask: int = 0o022
) -> dict[str, Path]:
    """Build in a folder; return what was built by target."""
    out = tree.with_name(f"{tree.name} built")
    env = {"PATH": os.defpath, "HOME": str(tree.parent), "SOURCE_DATE_EPOCH": committed(), **more}
    run(
        python,
        "-m",
        "hatchling",
        "build",
        *(f"-t{each}" for each in targets),
        "-d",
        out,
        cwd=tree,
        env=env,
        umask=umask,
    )
    endings = {"sdist": "*.tar.gz", "wheel": "*.whl"}
    return {each: next(out.glob(endings[each])) for each in targets}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def members(path: Path) -> dict[str, tuple[object, bytes]]:
    """Return date and mode, and the bytes, of each member of a wheel or an sdist."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            return {one.filename: ((one.date_time, one.external_attr), archive.read(one)) for one in archive.infolist()}
    with tarfile.open(path) as archive:
        every = [(one, archive.extractfile(one)) for one in archive.getmembers()]
        return {one.name: ((one.mtime, one.mode, one.uid), file.read()) for one, file in every if file}


def same(first: Path, second: Path, how: str) -> None:
    """Stop if two builds differ; name the first member that does."""
    if digest(first) == digest(second):
        return
    left, right = members(first), members(second)
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            stop(f"{first.name} is another file when it is built {how}: {name} differs")
    stop(f"{first.name} is packed in another way when it is built {how}; each member is the same")


def copy(tree: Path, to: Path, mask: int = 0) -> Path:
    """Copy the files that git knows, as a clone under that umask has them."""
    for name in tracked(tree):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / name, to / name)
        (to / name).chmod((0o755 if os.access(tree / name, os.X_OK) else 0o644) & ~mask)
    return to


def build(work: Path, python: Path, *, short: bool) -> dict[str, Path]:
    """Build three times, in separate environments and folders, and return the files of the first build."""
    makers = [environment(work / f"maker {n}", python, "-c", ROOT / "constraints.txt", "hatchling") for n in (1, 2)]
    tree = ROOT
    if not short:  # what a stranger has: one commit, without tags
        run("git", "clone", "--quiet", "--depth=1", "--no-tags", f"file://{ROOT}", tree := work / "clone")
    first = built(makers[0], copy(tree, work / "tree") if short else tree, ("sdist", "wheel"), {})
    other = copy(tree, work / "another folder/of another name", 0o077)
    second = built(makers[1], other, ("sdist", "wheel"), ELSEWHERE, umask=0o077)
    for each, path in first.items():
        same(path, second[each], "twice")
    with tarfile.open(first["sdist"]) as archive:
        archive.extractall(work / "sdist", filter="data")
    (unpacked,) = (work / "sdist").iterdir()
    same(first["wheel"], built(makers[1], unpacked, ("wheel",), ELSEWHERE)["wheel"], "from the sdist")
    return first


# ------------------------------------------------------------------------------------------------------- contents


def contents(files: dict[str, Path], work: Path) -> None:
    """Stop if a file is missing or one too many, if metadata is wrong, or if a file knows where it was built."""
    names, ours = tracked(), f"gesta-{VERSION}"
    info = f"{ours}.dist-info"
    expected = {
        "wheel": {name.removeprefix("src/") for name in names if name.startswith("src/gesta/")}
        | {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")},
        "sdist": {f"{ours}/{name}" for name in (*names, "PKG-INFO")},
    }
    here = [str(each).encode() for each in (ROOT, work, Path.home(), platform.node())]
    for target, path in files.items():
        found = members(path)
        if odd := sorted(found.keys() ^ expected[target]):
            stop(f"{path.name} and git differ; only one of them has {odd[:9]}")
        for name, (_, held) in found.items():
            if where := [each.decode() for each in here if len(each) > 5 and each in held]:
                stop(f"{path.name}: {name} names {where}, of the machine it was built on")
    wheel = members(files["wheel"])
    said = email.message_from_bytes(wheel[f"{info}/METADATA"][1])
    if (said["Name"], said["Version"]) != ("gesta", VERSION) or not str(said.get_payload()).startswith("# Gesta"):
        stop(f"the metadata is of {said['Name']} {said['Version']}, or the README is missing in it")


# -------------------------------------------------------------------------------------------------------- install


def attempt(home: Path, python: Path) -> None:
    """Use an installed wheel as somebody who has nothing else: import it, ask its version, complete, run the demo."""
    env, gesta = {**ALONE, "HOME": str(home), "PATH": os.defpath}, python.with_name("gesta")

    def says(expected: str, *words: str | Path, **more: str) -> None:
        printed = run(*words, cwd=home, env={**env, **more})
        if not re.search(expected, printed, re.MULTILINE):
            stop(f"`{' '.join(map(str, words))}` printed this, where {expected!r} was expected:\n{printed}")

    version = re.escape(VERSION)
    says(rf"^{version} .*site-packages", python, "-Ic", "import gesta; print(gesta.__version__, gesta.__file__)")
    says("^True$", python, "-Ic", "from importlib.resources import files; print((files('gesta')/'py.typed').is_file())")
    says(rf"^gesta {version}$", gesta, "--version")
    says(rf"^gesta {version}$", python, "-Im", "gesta", "--version")
    for shell in ("bash", "zsh", "fish"):
        says(r"_GESTA_COMPLETE", gesta, _GESTA_COMPLETE=f"source_{shell}")
    says(r"^resume$", gesta, _GESTA_COMPLETE="complete_bash", COMP_WORDS="gesta res", COMP_CWORD="1")
    says("", gesta, "demo", "--yes")
    says("", gesta, "verify", "runs.gesta")
    says("", gesta, "why", "last")


def tried(wheel: Path, work: Path, *, short: bool) -> None:
    """Install the wheel alone and use it: on every Python with pip, or on the newest with uv."""
    every = pythons.found()
    for version, path in every[-1:] if short else every:
        name = ".".join(map(str, version))
        folder, home = work / f"installed {name}", work / f"home {name}"
        home.mkdir()
        if short:
            python = environment(folder, path, wheel)
        else:
            run(path, "-m", "venv", folder)
            python = folder / "bin/python"
            run(python, "-m", "pip", "install", "--quiet", wheel, cwd=home)
            run(python, "-m", "pip", "check", cwd=home)
        attempt(home, python)
        told(f"the wheel alone works on Python {name}")


# --------------------------------------------------------------------------------------------------------- papers

STRICT = """
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(sys.argv[1]).read_text())
sys.exit(found and str(found))
"""


def plain(text: str, wheel: str, resolved: str) -> str:
    """Return a bill of materials of this wheel alone, given one as it was made.

    Addresses are left out: names, versions and licences tell a scanner all, and no index or machine is named. What only
    an extra names is there because another library needs it; it is no direct dependency.
    """
    made = json.loads(
        text, object_hook=lambda held: {name: held[name] for name in held if name != "externalReferences"}
    )
    itself = made["metadata"]["component"]
    itself |= {
        "purl": f"pkg:pypi/gesta@{VERSION}",
        "hashes": [{"alg": "SHA-256", "content": wheel}],
        "properties": [{"name": "gesta:resolved-on", "value": resolved}],
    }
    needed = {re.split(r"[^\w.-]", each)[0] for each in PROJECT["dependencies"]}
    (direct,) = (each for each in made["dependencies"] if each["ref"] == itself["bom-ref"])
    direct["dependsOn"] = [each for each in direct["dependsOn"] if each.partition("==")[0] in needed]
    if len(direct["dependsOn"]) != len(needed):
        stop(f"the bill of materials has {direct['dependsOn']}; the wheel needs {sorted(needed)}")
    return json.dumps(made, indent=2, sort_keys=True) + "\n"


def papers(files: dict[str, Path], work: Path) -> Path:
    """Check the metadata as an index would, and write the bill of materials."""
    version, python = pythons.found()[0]
    tools = environment(work / "tools", python, "-r", ROOT / ".ci/release.txt")
    run(tools, "-m", "twine", "check", "--strict", *files.values())
    known = run(tools, "-c", "import trove_classifiers; print(*trove_classifiers.classifiers, sep='\\n')").splitlines()
    if unknown := set(PROJECT["classifiers"]).difference(known):
        stop(f"no index knows the classifiers {unknown}")
    alone = environment(work / "alone", python, "-c", ROOT / "constraints.txt", files["wheel"])
    bill, made = work / f"gesta-{VERSION}.cdx.json", work / "made.json"
    run(
        *(tools.with_name("cyclonedx-py"), "environment", "--pyproject", ROOT / "pyproject.toml"),
        *("--mc-type", "library", "--output-reproducible", "-o", made, alone),
        env={**os.environ, "SOURCE_DATE_EPOCH": committed()},
    )
    text = plain(
        made.read_text(encoding="utf-8"), digest(files["wheel"]), f"Python {version[0]}.{version[1]}, {sys.platform}"
    )
    bill.write_text(text, encoding="utf-8")
    run(tools, "-c", STRICT, bill)
    if where := [each for each in ("file:", str(work), str(ROOT), str(Path.home()), platform.node()) if each in text]:
        stop(f"the bill of materials names {where}, of the machine it was made on")
    return bill


def main() -> None:
    """Do the steps in their order."""
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    asked.add_argument("--short", action="store_true", help="what CI does at each change")
    asked.add_argument("--rehearsal", action="store_true", help="go on though the tree is not ready to be released")
    given = asked.parse_args()
    problems = [] if given.short else unready()
    if problems and not given.rehearsal:
        stop("not ready to be released:\n- " + "\n- ".join(problems))
    with tempfile.TemporaryDirectory(prefix="gesta-release-") as folder:
        work = Path(folder).resolve()
        oldest = pythons.found()[0][1]
        files = build(work, oldest, short=given.short)
        told(f"gesta {VERSION}: wheel and sdist are the same when built twice, and the wheel from the sdist too")
        contents(files, work)
        told("both hold what they should and nothing else")
        leave = [*files.values()]
        if not given.short:
            leave.append(papers(files, work))
            told("an index would take the metadata; the bill of materials is written")
        tried(files["wheel"], work, short=given.short)
        if given.short:
            return
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        (ROOT / "dist").mkdir()
        for path in leave:
            shutil.copyfile(path, ROOT / "dist" / path.name)
        sums = "".join(f"{digest(path)}  {path.name}\n" for path in leave)
        (ROOT / "dist/SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums)
    if problems:
        print("This was a rehearsal. Before a release:\n- " + "\n- ".join(problems))
    else:
        print(f"Nothing was uploaded. Go on with docs/releasing.md: tag v{VERSION}, push, upload what lies in dist/.")


START = time.perf_counter()
if __name__ == "__main__":
    main()
