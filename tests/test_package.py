"""The package is light to import, its arrows go one way, and what is installed is all of it."""

import ast
import json
import shutil
import subprocess
import sys
import zipfile
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import HANG_S

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "course_lib"
TOPICS = (
    "optimization",
    "architectures",
    "attention",
    "representation",
    "theory",
    "language",
    "mbart",
    "sae",
    "interpret",
)
HEAVY = ("torch", "transformers", "matplotlib", "ipywidgets", "numpy")
MBART_LESSONS = {"inside_mbart", "stacked_autoencoder", "mbart_to_sparse_features"}
ROOMS = tuple(
    f"course_lib.{room}"
    for room in ("devices", "doctor", "figures", "files", "parallel", "reopened", "update")
)
IMPORT_LIMIT_S = 0.3  # of CPU time


def fresh_python(code: str) -> dict:
    """What a fresh interpreter prints as JSON in its last line when it runs `code` at the project's root."""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


# ---------------------------------------------------------------- what an import costs

IMPORT = """
import json, sys, time
start = time.process_time()
import course_lib
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}))
"""


def test_importing_the_package_is_light():
    runs = [fresh_python(IMPORT) for _ in range(3)]
    assert "course_lib" in runs[0]["modules"]
    assert [name for name in HEAVY if name in runs[0]["modules"]] == []
    assert min(run["seconds"] for run in runs) < IMPORT_LIMIT_S


def test_a_heavy_import_would_be_seen():
    modules = fresh_python(IMPORT.replace("import course_lib", "import numpy"))["modules"]
    assert [name for name in HEAVY if name in modules] == ["numpy"]


LESSONS = """
import importlib, json, sys
first = {}
for name in NAMES:
    importlib.import_module(name)
    for heavy in ("transformers",):
        if heavy in sys.modules:
            first.setdefault(heavy, name)
print(json.dumps({"first": first}))
"""


def lesson_modules() -> list[str]:
    names = sorted(path.parent.name for path in (PACKAGE / "lessons").glob("*/__init__.py"))
    return [f"course_lib.lessons.{name}" for name in names if name not in MBART_LESSONS]


def first_to_import_transformers(names: list[str]) -> dict:
    return fresh_python(LESSONS.replace("NAMES", repr(names)))["first"]


def test_lessons_but_those_on_mbart_do_not_import_transformers():
    names = lesson_modules()
    assert "course_lib.lessons.gradient_descent_stability" in names
    assert first_to_import_transformers(names) == {}


def test_a_lesson_that_imports_transformers_would_be_named():
    assert first_to_import_transformers(["json", "transformers"]) == {"transformers": "transformers"}


# ---------------------------------------------------------------- arrows


def imported_modules(source: str, *, module: str, is_package: bool) -> set[str]:
    """Every dotted name that a module imports, inside functions too; relative imports are resolved.

    `from a import b` counts as both `a` and `a.b`, since b may be a module.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: None if is_package else -1]
                parents = parents[: len(parents) - (node.level - 1)]
                base = ".".join([*parents, *([base] if base else [])])
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return names


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def forbidden_for(module: str) -> tuple[str, ...]:
    """What a module may not import, by its place.

    notebooks -> lessons -> (teaching, topic modules);
    language -> mbart -> sae -> interpret -> pipeline -> editions; the rooms that all share know none.
    """
    forbidden: tuple[str, ...] = ()
    topics = tuple(f"course_lib.{topic}" for topic in TOPICS)
    if within(module, topics):
        forbidden += ("course_lib.figures", "matplotlib", "ipywidgets")
    if within(module, ("course_lib.mbart",)):
        forbidden += ("course_lib.sae",)
    pretraining = ("course_lib.mbart.pretraining",)
    if within(module, ("course_lib.mbart",)) and not within(module, pretraining):
        # What reads real models knows how text is stored, and nothing of the generated language but a sentence.
        forbidden += (
            *pretraining,
            *(f"course_lib.language.{part}" for part in ("grammar", "lexicon", "noise")),
        )
    if within(module, ("course_lib.language",)):
        forbidden += ("course_lib.mbart",)
    if within(module, ("course_lib.language", "course_lib.mbart", "course_lib.sae")):
        forbidden += ("course_lib.interpret",)
    if not within(module, ("course_lib.editions", "course_lib.commands")):
        forbidden += ("course_lib.editions",)
    if within(module, (*topics, "course_lib.pipeline", *ROOMS)):
        forbidden += ("course_lib.teaching", "course_lib.lessons")
    if within(module, (*topics, "course_lib.teaching", *ROOMS)):
        forbidden += ("course_lib.pipeline",)
    if within(module, ROOMS):
        forbidden += topics
    if within(module, ("course_lib.teaching",)):
        forbidden += ("course_lib.lessons", *topics)
    if not within(module, ("course_lib.mbart", "course_lib.pipeline")):
        forbidden += ("transformers",)
    return forbidden


def sources() -> dict[str, tuple[str, bool]]:
    """The text of every module of the package, and whether it is a package itself."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        is_package = path.name == "__init__.py"
        place = path.parent if is_package else path.with_suffix("")
        found[".".join(place.relative_to(ROOT).parts)] = (path.read_text(encoding="utf-8"), is_package)
    return found


def arrow_faults(module: str, source: str, *, is_package: bool = False) -> list[str]:
    imports = imported_modules(source, module=module, is_package=is_package)
    return [f"{module} imports {name}" for name in sorted(imports) if within(name, forbidden_for(module))]


def test_arrows_go_one_way():
    faults = [
        fault
        for module, (source, is_package) in sources().items()
        for fault in arrow_faults(module, source, is_package=is_package)
    ]
    assert faults == []
    assert {
        "course_lib.mbart",
        "course_lib.sae",
        "course_lib.optimization",
        "course_lib.teaching",
        *ROOMS,
    } <= set(sources())


def import_circle(modules: dict[str, tuple[str, bool]]) -> list[str] | None:
    """Some modules that import each other in a circle, inside functions too; None where there are none.

    `from a import b` of a module b is an arrow to b alone: that a package imports its parts is no circle.
    """
    graph = {}
    for module, (source, is_package) in modules.items():
        found = imported_modules(source, module=module, is_package=is_package) & modules.keys()
        passed = {name for name in found if any(other.startswith(f"{name}.") for other in found)}
        graph[module] = found - passed - {module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_no_modules_import_each_other_in_a_circle():
    assert import_circle(sources()) is None


@pytest.mark.parametrize(
    "sources",
    [
        {"p.a": "from p import b", "p.b": "import p.a"},
        {"p.a": "from p.b import x", "p.b": "def f():\n    from . import a"},
        {"p.a": "import p.b", "p.b": "import p.c", "p.c": "from p.a import x"},
    ],
)
def test_a_circle_is_found(sources):
    modules = {"p": ("from p.a import x", True)} | {name: (text, False) for name, text in sources.items()}
    assert set(import_circle(modules)) == set(sources)
    modules["p.b"] = ("", False)
    assert import_circle(modules) is None


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("course_lib.sae.train", "import matplotlib.pyplot as plt"),
        ("course_lib.sae.train", "def draw():\n    import ipywidgets"),
        ("course_lib.optimization.descent", "from course_lib.teaching import claim"),
        ("course_lib.optimization.descent", "from course_lib import lessons"),
        ("course_lib.optimization.descent", "from ..teaching.style import new_figure"),
        ("course_lib.optimization.descent", "from .. import teaching"),
        ("course_lib.attention.scaled", "import transformers.models.bart"),
        ("course_lib.teaching.claims", "from ..lessons import start_here"),
        ("course_lib.lessons.attention_scaling", "from transformers import AutoModel"),
        ("course_lib.mbart.splicing", "from course_lib.sae.autoencoder import Autoencoder"),
        ("course_lib.mbart.splicing", "from course_lib.mbart.pretraining.scores import retrieval_top1"),
        ("course_lib.mbart.activations", "from course_lib.language import lexicon"),
        ("course_lib.sae.train", "from course_lib.pipeline import run"),
        ("course_lib.sae.metrics", "from course_lib.figures import new_figure"),
        ("course_lib.pipeline.report", "from course_lib.teaching.style import show"),
        ("course_lib.files", "from course_lib import sae"),
        ("course_lib.teaching.explorer", "from course_lib.sae import load"),
    ],
)
def test_a_wrong_arrow_is_found(module, source):
    assert len(arrow_faults(module, source)) >= 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "course_lib.mbart.model",
            "import transformers\nfrom .corpus import generate\nfrom course_lib.files import x",
        ),
        (
            "course_lib.pipeline",
            "from transformers import AutoTokenizer\nfrom .figures import new_figure",
        ),
        (
            "course_lib.lessons.start_here",
            "from ..teaching import claim\nimport matplotlib\nimport ipywidgets",
        ),
        ("course_lib.sae.metrics", "import teaching\nfrom . import lessons\nimport matplotlib_inline"),
    ],
)
def test_a_right_arrow_is_not(module, source):
    assert arrow_faults(module, source) == []


def test_a_package_resolves_its_own_relative_imports():
    source = "from .. import teaching\nfrom .teaching import x"
    assert arrow_faults("course_lib.sae", source, is_package=True) == [
        "course_lib.sae imports course_lib.teaching"
    ]


# ---------------------------------------------------------------- what is installed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The names in a wheel that is built from a copy: building leaves files beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    shutil.copytree(PACKAGE, tree / "course_lib")
    shutil.copytree(ROOT / "tests", tree / "tests")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, tree)
    command = [
        "pip",
        "wheel",
        ".",
        "--no-deps",
        "--no-build-isolation",
        "--no-cache-dir",
        "-q",
        "-w",
        str(folder),
    ]
    subprocess.run(
        [sys.executable, "-m", *command], cwd=tree, check=True, capture_output=True, timeout=HANG_S
    )
    (built,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(built).namelist())


def test_the_wheel_holds_every_file_of_the_package(wheel):
    files = {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - wheel == set()


@pytest.mark.parametrize(
    "name",
    [
        "pipeline/report.html.j2",
        *(f"mbart/course-mbart/{name}" for name in ("config.json", "model.safetensors")),
        *(f"mbart/course-mbart-help/{name}" for name in ("config.json", "model.safetensors")),
    ],
)
def test_the_wheel_holds_the_data_that_the_pipeline_reads(wheel, name):
    assert f"course_lib/{name}" in wheel


def test_the_wheel_holds_nothing_else(wheel):
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"course_lib"}
    assert [name for name in wheel if "__pycache__" in name or "/test" in name] == []
