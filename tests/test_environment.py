"""One list of dependencies: pyproject.toml, constraints.txt, environment.yml, imports and README agree.

Every comparison is a function from texts to complaints. It is called once on the project, where it
must have none, and on drifted copies, where it must have some.
"""

import ast
import copy
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "course_lib"
FIRST_PARTY = {"benchmarks", "course_lib", "setup_course", "tests"}

# Declared and used, but by no import statement.
USED_WITHOUT_IMPORT = {
    "jupyterlab": "the program that `make lab` starts",
    "nbgrader": "the program that `hand-out` calls",
    "nbval": "the pytest plugin behind `make test`'s notebook run",
    "protobuf": "the format of sentencepiece.bpe.model: without it transformers cannot read the file",
    "sentencepiece": "what transformers reads a checkpoint's sentencepiece.bpe.model with",
    "pytest-xdist": "the pytest plugin behind -n",
    "tensorboard": "what torch.utils.tensorboard, the writer of `sae.train`'s curves, is made of",
    "beartype": "checks annotations at run time, through --jaxtyping-packages",
    "accessible-pygments": "the colours of code on the slides of `make teacher`",
    "furo": "the theme that `make site` names to Sphinx",
    "myst-nb": "what Sphinx reads the notebooks with",
    "sphinx-copybutton": "the button beside code on the pages of `make site`",
    "sphinx-mathjax-offline": "MathJax and its fonts, which `make site` copies",
    "ruff": "the program behind `make lint`",
    "setuptools": "builds the wheel that tests/test_package.py looks into",
    "torch-geometric": "what tests/architectures/test_graphs.py compares with, where it is installed",
}

# What the ranges have to let in.
ADMITTED = {
    "torch": ["2.11.0", "2.12.0", "2.13.0"],
    "transformers": ["5.17.0", "5.23.0", "5.99.0"],
}
ADMITTED_PYTHONS = ["3.11.0", "3.11.14", "3.12.0", "3.12.12", "3.13.0", "3.13.9", "3.14.0"]
EVERYTHING = (
    "grading",
    "kernels",
    "lab",
    "peers",
    "site",
    "tables",
    "tensorboard",
    "test",
    "translation",
    "wandb",
)


BY_PIP = [
    "--extra-index-url https://download.pytorch.org/whl/cpu",
    "--constraint constraints.txt",
    "--editable .[lab,peers]",
]

# ---------------------------------------------------------------- reading


@cache
def imported_names(source: str) -> set[str]:
    """The top-level names that a source imports anywhere, inside functions too, relative imports left out."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


def without_guarded(source: str) -> str:
    """The source without imports for whose absence it is prepared: all of `try: import x` with `except ImportError`."""

    class Rest(ast.NodeTransformer):
        def visit_Try(self, node: ast.Try) -> ast.AST:
            caught = {
                name.id
                for h in node.handlers
                if h.type
                for name in ast.walk(h.type)
                if isinstance(name, ast.Name)
            }
            if caught & {"ImportError", "ModuleNotFoundError"}:
                node.body = [
                    part for part in node.body if not isinstance(part, ast.Import | ast.ImportFrom)
                ] or [ast.Pass()]
            return self.generic_visit(node)

    return ast.unparse(Rest().visit(ast.parse(source)))


def notebook_source(text: str) -> str:
    """The code of a notebook without its magics."""
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    lines = "\n".join("".join(cell["source"]) for cell in cells).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


distributions_by_import = cache(importlib.metadata.packages_distributions)


def third_party(sources: Iterable[str]) -> set[str]:
    """The distributions that sources import, by canonical name; an unknown import stands for itself."""
    names = set().union(*(imported_names(source) for source in sources))
    distributions = distributions_by_import()
    return {
        canonicalize_name(distributions.get(name, [name])[0])
        for name in names - FIRST_PARTY - set(sys.stdlib_module_names)
    }


def sources_under(folder: str) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob("*.py"))]


def notebook_sources() -> list[str]:
    return [
        notebook_source(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("notebooks/*.ipynb"))
    ]


def declared(project: dict, *extras: str) -> dict[str, SpecifierSet]:
    lines = list(project["project"]["dependencies"])
    for extra in extras:
        lines += project["project"]["optional-dependencies"][extra]
    parsed = [Requirement(line) for line in lines]
    # An extra may name others of this project.
    return {
        canonicalize_name(requirement.name): requirement.specifier
        for requirement in parsed
        if requirement.name != project["project"]["name"]
    }


def pinned(constraints: str) -> dict[str, str]:
    pins = {}
    for line in constraints.splitlines():
        if line.strip() and not line.startswith("#"):
            requirement = Requirement(line)
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", f"constraints.txt: {line} is no exact version"
            pins[canonicalize_name(requirement.name)] = specifier.version
    return pins


def commands_in(markdown: str) -> list[list[str]]:
    """The `make`, `course` and `python -m course_lib` commands in a page's code, as words."""
    code = re.findall(r"```[^\n]*\n(.*?)```", markdown, re.DOTALL)
    outside = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    code += re.findall(r"`([^`]+)`", outside)
    start = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*((?:make|course|\S*python[\d.]* -m course_lib)(?: .*)?)$")
    matches = [start.match(line.split("  #")[0].strip()) for block in code for line in block.splitlines()]
    return [shlex.split(match[1], comments=True) for match in matches if match]


# ---------------------------------------------------------------- comparing


def undeclared(imports: set[str], declarations: Iterable[str]) -> list[str]:
    return [f"{name} is imported but not declared" for name in sorted(imports - set(declarations))]


def unused(declarations: Iterable[str], imports: set[str], explained: Iterable[str]) -> list[str]:
    declarations, explained = set(declarations), set(explained)
    faults = [f"{name} is declared but never imported" for name in sorted(declarations - imports - explained)]
    return faults + [f"{name} is explained but not declared" for name in sorted(explained - declarations)]


def unpinned(declarations: dict[str, SpecifierSet], pins: dict[str, str]) -> list[str]:
    faults = []
    for name, specifier in declarations.items():
        if name not in pins:
            faults.append(f"{name} is not pinned")
        elif not specifier.contains(pins[name]):
            faults.append(f"{name} is pinned to {pins[name]}, outside {specifier}")
    if pins.get("torch") != "2.13.0":
        faults.append(f"torch is pinned to {pins.get('torch')}, not 2.13.0")
    return faults


def narrow(project: dict) -> list[str]:
    ranges = declared(project)
    asked = [(name, ranges[name], versions) for name, versions in ADMITTED.items()]
    asked.append(("python", SpecifierSet(project["project"]["requires-python"]), ADMITTED_PYTHONS))
    return [
        f"{name} {version} is not in {specifier}"
        for name, specifier, versions in asked
        for version in versions
        if not specifier.contains(version)
    ]


def environment_faults(environment: dict) -> list[str]:
    """Python and pip from conda-forge, this project by pip with a torch for the CPU, nothing else."""
    faults = []
    if environment["channels"] != ["conda-forge", "nodefaults"]:
        faults.append(f"channels are {environment['channels']}")
    by_pip = []
    names = []
    for entry in environment["dependencies"]:
        if isinstance(entry, dict):
            by_pip += entry["pip"]
        else:
            name, _, version = entry.partition("=")
            names.append(name)
            if name == "python" and f"{version}.0" not in ADMITTED_PYTHONS:
                faults.append(f"python is {version}")
    if names != ["python", "pip"]:
        faults.append(f"conda installs {names}")
    if by_pip != BY_PIP:
        faults.append(f"pip installs {by_pip}")
    return faults


def command_faults(
    markdown: str, *, targets: set[str], makefile: str, is_command: Callable[[str], bool]
) -> list[str]:
    """The commands on a page that do not exist, and the two that have to be there."""
    faults = []
    commands = commands_in(markdown)
    for words in commands:
        if words[0] != "make":
            name = words[1:] if words[0] == "course" else words[3:]
            if name and not name[0].startswith("-") and not is_command(name[0]):
                faults.append(f"there is no command {name[0]}")
            continue
        for word in words[1:]:
            variable, assigned, _ = word.partition("=")
            if assigned and f"$({variable})" not in makefile:
                faults.append(f"the Makefile has no variable {variable}")
            elif not assigned and not word.startswith("-") and word not in targets:
                faults.append(f"the Makefile has no target {word}")
    return faults + [
        f"make {name} is not named" for name in ("lab", "test") if ["make", name] not in commands
    ]


@cache
def make_targets() -> set[str]:
    """The named targets of the Makefile, as make itself expands them."""
    database = subprocess.run(
        ["make", "--no-print-directory", "-npRr", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return set(re.search(r"^\.PHONY:(.*)$", database, re.MULTILINE)[1].split())


@cache
def is_command(name: str) -> bool:
    """Whether `python -m course_lib NAME` exists."""
    asked = subprocess.run(
        [sys.executable, "-m", "course_lib", name, "--help"], cwd=ROOT, capture_output=True
    )
    return asked.returncode == 0


# ---------------------------------------------------------------- the project


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def pins():
    return pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def makefile():
    return (ROOT / "Makefile").read_text(encoding="utf-8")


def test_what_python_compiles_is_kept_where_containers_forbid_it():
    said = subprocess.run(
        ["make", "--no-print-directory", "-sf", "-", "environment"],
        cwd=ROOT,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        input="include Makefile\nenvironment:\n\t@env\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "PATH=" in said
    assert "PYTHONDONTWRITEBYTECODE" not in said


# What comes with an extra, and where it may be imported without a word of what to install.
ROOMS_OF_EXTRAS = {
    "editions/grading": "grading",
    "editions": "site",
    "doctor.py": "lab",
    "reopened.py": "lab",
    "attention/quadratic_triton.py": "kernels",
}


def test_the_library_imports_core_dependencies_only(project):
    """What it can do without, and says so, may come with an extra."""
    rooms = {
        room: [PACKAGE / room] if room.endswith(".py") else list((PACKAGE / room).rglob("*.py"))
        for room in ROOMS_OF_EXTRAS
    }
    for room, extra in ROOMS_OF_EXTRAS.items():
        assert rooms[room]
        own = [path for path in rooms[room] if room != "editions" or path not in rooms["editions/grading"]]
        needed = third_party(path.read_text(encoding="utf-8") for path in own)
        assert undeclared(needed, declared(project, extra)) == [], room
    apart = {path for paths in rooms.values() for path in paths}
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if path not in apart]
    needed = third_party(without_guarded(source) for source in sources)
    assert {"torch", "numpy"} <= needed
    assert undeclared(needed, declared(project)) == []
    assert (
        undeclared(third_party(sources), declared(project, "tables", "tensorboard", "translation", "wandb"))
        == []
    )


def test_an_import_that_an_extra_brings_names_the_extra():
    found = re.findall(r"course-lib\[(\w+)\]", "\n".join(sources_under("course_lib")))
    assert {"tables", "tensorboard", "translation", "wandb", "peers"} <= set(found)
    assert set(found) <= set(EVERYTHING)


def test_the_notebooks_import_what_is_installed_with_them(project):
    imports = third_party(notebook_sources())
    assert {"torch", "scikit-learn"} <= imports
    assert undeclared(imports, declared(project, "lab", "peers")) == []


def test_the_tests_import_declared_dependencies_only(project):
    imports = third_party(sources_under("tests"))
    assert {"pytest", "pyyaml"} <= imports
    assert undeclared(imports, declared(project, *EVERYTHING)) == []


def test_the_tests_install_everything_but_the_grading_tool(project):
    (own,) = [
        Requirement(line)
        for line in project["project"]["optional-dependencies"]["test"]
        if Requirement(line).name == "course-lib"
    ]
    assert own.extras == set(EVERYTHING) - {"grading", "test"}


def test_every_dependency_is_used(project):
    imports = third_party(
        sources_under("course_lib")
        + sources_under("tests")
        + sources_under("benchmarks")
        + notebook_sources()
    )
    assert unused(declared(project, *EVERYTHING), imports, USED_WITHOUT_IMPORT) == []


def test_core_dependencies_are_not_there_for_the_tests_alone(project):
    imports = third_party(sources_under("course_lib") + notebook_sources())
    explained = set(USED_WITHOUT_IMPORT) & set(declared(project))
    assert unused(declared(project), imports, explained) == []


def test_every_dependency_is_pinned_inside_its_range(project, pins):
    assert unpinned(declared(project, *EVERYTHING), pins) == []


def test_the_ranges_are_as_wide_as_promised(project):
    assert narrow(project) == []


def test_environment_yml_holds_python_pip_and_this_project():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert environment_faults(environment) == []


def test_every_command_in_readme_and_docs_exists(makefile):
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert command_faults(text, targets=make_targets(), makefile=makefile, is_command=is_command) == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem
)
def test_a_workflow_calls_targets_that_exist(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    commands = [shlex.split(step["run"]) for step in steps if "run" in step]
    called = {words[1] for words in commands if words[0] == "make"}
    assert called
    assert called <= make_targets()
    # Actions are pinned by their major version.
    assert [step["uses"] for step in steps if not re.search(r"@v\d+$", step.get("uses", "@v1"))] == []
    pythons = {
        python
        for job in workflow["jobs"].values()
        for python in job.get("strategy", {}).get("matrix", {}).get("python", ())
    }
    assert all(f"{python}.0" in ADMITTED_PYTHONS for python in pythons)


def test_every_command_in_the_makefile_exists(makefile):
    names = set(re.findall(r"-m course_lib (\w+)", makefile))
    assert "figures" in names
    assert [name for name in sorted(names) if not is_command(name)] == []
    assert not is_command("no-such-command")


def test_help_names_every_target(makefile):
    helped = set(re.findall(r'@echo "make (\w+)', makefile))
    parts = {
        "help",
        "lint",
        "unit",
        "notebooks",
        "browser",
        "site-test",
        "teacher-test",
        "grading-test",
        "wheel-test",
    }
    assert helped == make_targets() - parts


# ---------------------------------------------------------------- drifted copies


def test_imports_are_found_wherever_they_stand():
    source = (
        "import os, yaml\nfrom PIL import Image\nfrom . import x\ndef f():\n    import a_new_package.b as c\n"
    )
    assert imported_names(source) == {"os", "yaml", "PIL", "a_new_package"}
    assert third_party([source]) == {"pyyaml", "pillow", "a-new-package"}
    assert third_party(["import course_lib, tests, sys"]) == set()


def test_only_an_import_whose_absence_is_caught_counts_as_guarded():
    source = """
try:
    import clarabel
    import highspy
except ImportError:
    clarabel = None
    import scipy
try:
    import cvxpy
except ValueError:
    pass
"""
    assert imported_names(source) == {"clarabel", "highspy", "scipy", "cvxpy"}
    assert imported_names(without_guarded(source)) == {"scipy", "cvxpy"}


def test_imports_of_notebooks_are_found():
    cells = [
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch\n"]},
        {"cell_type": "markdown", "source": "import scipy"},
        {"cell_type": "code", "source": "!ls\nimport sklearn"},
    ]
    assert imported_names(notebook_source(json.dumps({"cells": cells}))) == {"torch", "sklearn"}


def test_drift_between_imports_and_dependencies_is_found():
    assert undeclared({"torch", "scipy"}, {"torch"}) == ["scipy is imported but not declared"]
    assert unused({"torch", "scipy"}, {"torch"}, {}) == ["scipy is declared but never imported"]
    assert unused({"torch"}, {"torch"}, {"nbval"}) == ["nbval is explained but not declared"]
    assert unused({"torch", "nbval"}, {"torch"}, {"nbval"}) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"numpy": None}, "numpy is not pinned"),
        ({"numpy": "9.0"}, "numpy is pinned to 9.0, outside"),
        ({"torch": "2.12.0"}, "torch is pinned to 2.12.0, not 2.13.0"),
    ],
)
def test_drift_between_dependencies_and_pins_is_found(project, pins, change, fault):
    drifted = {name: version for name, version in (pins | change).items() if version}
    assert any(found.startswith(fault) for found in unpinned(declared(project, "test"), drifted))


def test_a_constraint_that_is_no_pin_is_found():
    assert pinned("# comment\n\nPyYAML==6.0\n") == {"pyyaml": "6.0"}
    with pytest.raises(AssertionError, match="no exact version"):
        pinned("numpy>=2\n")


@pytest.mark.parametrize(
    ("name", "narrowed", "fault"),
    [
        ("torch", "torch>=2.12,<2.14", "torch 2.11.0 is not in"),
        ("torch", "torch>=2.11,<2.13", "torch 2.13.0 is not in"),
        ("transformers", "transformers==5.23.0", "transformers 5.17.0 is not in"),
    ],
)
def test_a_narrowed_range_is_found(project, name, narrowed, fault):
    drifted = copy.deepcopy(project)
    lines = drifted["project"]["dependencies"]
    drifted["project"]["dependencies"] = [line for line in lines if Requirement(line).name != name] + [
        narrowed
    ]
    assert any(found.startswith(fault) for found in narrow(drifted))


@pytest.mark.parametrize(
    ("pythons", "fault"), [(">=3.12", "python 3.11.0 is not in"), ("<3.12", "python 3.12.0 is not in")]
)
def test_a_narrowed_python_is_found(project, pythons, fault):
    drifted = copy.deepcopy(project)
    drifted["project"]["requires-python"] = pythons
    assert any(found.startswith(fault) for found in narrow(drifted))


ENVIRONMENT = {
    "channels": ["conda-forge", "nodefaults"],
    "dependencies": ["python=3.12", "pip", {"pip": BY_PIP}],
}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"channels": ["defaults"]}, "channels are"),
        ({"dependencies": ["python=3.15", "pip"]}, "python is 3.15"),
        ({"dependencies": ["python=3.11", "pip", "numpy"]}, "conda installs"),
        ({"dependencies": ["python=3.11", "pip", {"pip": BY_PIP[1:]}]}, "pip installs"),
        ({"dependencies": ["python=3.11", "pip"]}, "pip installs []"),
    ],
)
def test_a_drifted_environment_yml_is_found(change, fault):
    assert environment_faults(ENVIRONMENT) == []
    assert any(found.startswith(fault) for found in environment_faults(ENVIRONMENT | change))


README = """
Call `make lab` or `make test`; you make progress.

```
make lab LAB_ARGS="--no-browser --port 8899"   # passes arguments on
REQUIRE_BROWSER=1 make test
.venv/bin/python -m course_lib pipeline --text builtin
```
"""


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("make test", "make tests", "the Makefile has no target tests"),
        ("make test", "make check", "make test is not named"),
        ("LAB_ARGS", "ARGS", "the Makefile has no variable ARGS"),
        ("pipeline", "pipelines", "there is no command pipelines"),
    ],
)
def test_a_drifted_readme_is_found(old, new, fault):
    known = {"targets": {"lab", "test"}, "makefile": "$(LAB_ARGS)", "is_command": {"pipeline"}.__contains__}
    assert len(commands_in(README)) == 5
    assert command_faults(README, **known) == []
    assert fault in command_faults(README.replace(old, new), **known)


def test_the_targets_are_those_of_the_makefile():
    assert {"lab", "test", "figures", "bench", "doctor"} <= make_targets()
    # A folder of that name is no target.
    assert "tests" not in make_targets()
