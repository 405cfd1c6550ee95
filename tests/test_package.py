"""The package is light to import, its arrows go one way, and what is installed is all of it."""

import ast
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "course_lib"
TOPICS = ("optimization", "architectures", "attention", "representation", "theory", "mbart", "sae")
HEAVY = ("torch", "transformers", "matplotlib", "ipywidgets", "numpy")
MBART_LESSONS = {"inside_mbart", "stacked_autoencoder", "mbart_to_sparse_features"}
IMPORT_LIMIT_S = 0.3


def fresh_python(code: str) -> dict:
    """What a fresh interpreter prints as JSON in its last line when it runs `code` at the project's root."""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
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
    names = sorted(path.stem for path in (PACKAGE / "lessons").glob("*.py") if path.stem != "__init__")
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
    """What a module may not import, by its place: notebooks -> lessons -> (teaching, topic modules)."""
    forbidden: tuple[str, ...] = ()
    if within(module, tuple(f"course_lib.{topic}" for topic in TOPICS)):
        forbidden += ("course_lib.teaching", "course_lib.lessons", "matplotlib", "ipywidgets")
    if within(module, ("course_lib.teaching",)):
        forbidden += ("course_lib.lessons",)
    if not within(module, ("course_lib.mbart", "course_lib.pipeline")):
        forbidden += ("transformers",)
    return forbidden


def arrow_faults(module: str, source: str, *, is_package: bool = False) -> list[str]:
    imports = imported_modules(source, module=module, is_package=is_package)
    return [f"{module} imports {name}" for name in sorted(imports) if within(name, forbidden_for(module))]


def test_arrows_go_one_way():
    faults, seen = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        is_package = path.name == "__init__.py"
        place = path.parent if is_package else path.with_suffix("")
        module = ".".join(place.relative_to(ROOT).parts)
        seen.add(module)
        faults += arrow_faults(module, path.read_text(encoding="utf-8"), is_package=is_package)
    assert faults == []
    assert {"course_lib.mbart", "course_lib.sae", "course_lib.optimization", "course_lib.teaching"} <= seen


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
    ],
)
def test_a_wrong_arrow_is_found(module, source):
    assert len(arrow_faults(module, source)) >= 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "course_lib.mbart.model",
            "import transformers\nfrom .corpus import generate\nfrom course_lib.sae import x",
        ),
        (
            "course_lib.pipeline",
            "from transformers import AutoTokenizer\nfrom .teaching.style import new_figure",
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
    for name in ("pyproject.toml", "README.md"):
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
    subprocess.run([sys.executable, "-m", *command], cwd=tree, check=True, capture_output=True, timeout=120)
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
    ["report.html.j2", *(f"mbart/course-mbart/{name}" for name in ("config.json", "model.safetensors"))],
)
def test_the_wheel_holds_the_data_that_the_pipeline_reads(wheel, name):
    assert f"course_lib/{name}" in wheel


def test_the_wheel_holds_nothing_else(wheel):
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"course_lib"}
    assert [name for name in wheel if "__pycache__" in name or "/test" in name] == []
