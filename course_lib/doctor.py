"""What is wrong with an environment, and the command that mends it.

Each check is a function of what it looks at, so that a test can hand it a wrong environment;
`examine` collects what this machine has and runs them all. Nothing heavy is imported before the
check that needs it: the doctor has to run where half of the packages are missing.
"""

import html
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["ok", "warn", "fail"]

DISTRIBUTION = "course-lib"
SUPPORTED_PYTHON = ((3, 11), (3, 12), (3, 13), (3, 14))
# The lab extension and ipywidgets are released together but count their majors apart.
MANAGER_MAJOR = {7: 3, 8: 5}


@dataclass(frozen=True)
class Finding:
    """What one check saw; `mend` is a command for a terminal, and empty where nothing is wrong."""

    name: str
    status: Status
    detail: str
    mend: str = ""


@dataclass(frozen=True)
class Findings:
    """Findings: one line where all is well, else a small table; HTML in a notebook, plain text elsewhere."""

    findings: tuple[Finding, ...]

    @property
    def in_order(self) -> str:
        """The one line to say where nothing has to be mended; empty where something has."""
        if any(finding.mend for finding in self.findings):
            return ""
        return "Everything is in order: " + "; ".join(finding.detail for finding in self.findings) + "."

    def __repr__(self) -> str:
        if self.in_order:
            return self.in_order
        lines = []
        for finding in self.findings:
            lines.append(f"{finding.status:<5} {finding.name:<17} {finding.detail}")
            if finding.mend:
                lines.append(f"{'':<5} {'to fix it:':<17} {finding.mend}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if self.in_order:
            return f'<span style="color:#1a7f37">{html.escape(self.in_order)}</span>'
        rows = ""
        for finding in self.findings:
            mend = f"<code>{html.escape(finding.mend)}</code>" if finding.mend else ""
            cells = (finding.status, html.escape(finding.name), html.escape(finding.detail), mend)
            rows += "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"
        heads = "".join(
            f'<th scope="col" style="text-align:left">{head}</th>'
            for head in ("", "check", "what was found", "to fix it")
        )
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


# ---------------------------------------------------------------- commands that mend


def _python(*arguments: str) -> str:
    """This interpreter with arguments, as a line for a shell: right in a venv, in conda and on Binder."""
    return shlex.join([sys.executable, *arguments])


def _in_checkout(command: str, checkout: Path | None) -> str:
    return f"cd {shlex.quote(str(checkout))} && {command}" if checkout else command


def _reinstall(checkout: Path | None, requirements: Sequence[str] = ()) -> str:
    """The command that brings the packages back to what this project asks for."""
    isolated = sys.prefix != sys.base_prefix or Path(sys.prefix, "conda-meta").is_dir()
    if checkout and not isolated:
        # The system's own Python is nothing to install into; the first command makes a .venv.
        return _in_checkout("make lab", checkout)
    if checkout:
        return _in_checkout(
            _python("-m", "pip", "install", "-c", "constraints.txt", "-e", ".[lab]"), checkout
        )
    return _python("-m", "pip", "install", "--upgrade", *(requirements or [DISTRIBUTION]))


# ---------------------------------------------------------------- the checks


def check_python(version: Sequence[int], *, checkout: Path | None) -> Finding:
    """Python is a version that the course is tested with."""
    major_minor = tuple(version[:2])
    detail = f"Python {'.'.join(map(str, version[:3]))}"
    if major_minor in SUPPORTED_PYTHON:
        return Finding("Python", "ok", detail)
    mend = "rm -rf .venv && make lab PYTHON=python3.12" if checkout else "python3.12 -m venv .venv"
    status: Status = "fail" if major_minor < SUPPORTED_PYTHON[0] else "warn"
    return Finding(
        "Python", status, f"{detail}; the course runs on 3.11 to 3.14", _in_checkout(mend, checkout)
    )


def check_versions(
    *,
    requirements: Sequence[str],
    constraints: str | None,
    installed: Mapping[str, str],
    checkout: Path | None,
) -> Finding:
    """Installed versions lie in the required ranges and, in a checkout, are the pinned ones.

    A package outside its range fails; one inside its range but not at its pin is a warning, since
    nobody has tested that combination. `installed` maps canonical names to versions.
    """
    from packaging.utils import canonicalize_name

    broken, differing = [], []
    for requirement in _applying(requirements, extra="lab" if checkout else ""):
        version = installed.get(canonicalize_name(requirement.name))
        if version is None:
            broken.append((f"{requirement.name} is not installed", requirement))
        elif not requirement.specifier.contains(version, prereleases=True):
            broken.append((f"{requirement.name} is {version}, not {requirement.specifier}", requirement))
    for pin in _applying(_lines(constraints or "")):
        version = installed.get(canonicalize_name(pin.name))
        if version is not None and not pin.specifier.contains(version, prereleases=True):
            differing.append((f"{pin.name} is {version}, pinned {pin.specifier}", pin))

    wrong = broken or differing
    if not wrong:
        against = "constraints.txt" if constraints is not None else "the ranges that course-lib asks for"
        return Finding("package versions", "ok", f"package versions agree with {against}")
    detail = "; ".join(text for text, _ in wrong[:4])
    if len(wrong) > 4:
        detail += f"; and {len(wrong) - 4} more"
    mend = _reinstall(checkout, [f"{requirement.name}{requirement.specifier}" for _, requirement in wrong])
    return Finding("package versions", "fail" if broken else "warn", detail, mend)


def check_kernel(
    *,
    prefix: str,
    in_notebook: bool,
    server_prefixes: Sequence[str],
    kernelspec_program: str | None,
    python: str,
) -> Finding:
    """Kernel and Jupyter server come from one environment, and `python3` starts that environment.

    Where they differ, packages that are installed for one are missing in the other, and widgets stay
    blank. `server_prefixes` are the environments that the kernel's parent process may belong to (none
    where that cannot be told); `kernelspec_program` is the first word of the `python3` kernelspec.
    """
    name = "kernel and server"
    mend = (
        f"{shlex.quote(python)} -m jupyter kernelspec remove -y python3; "
        f"{shlex.quote(python)} -m ipykernel install --sys-prefix --name python3"
    )
    if in_notebook and server_prefixes and not any(_same(prefix, other) for other in server_prefixes):
        return Finding(
            name,
            "fail",
            f"this kernel runs in {prefix}, the server that started it in {server_prefixes[0]}",
            f"{shlex.quote(python)} -m jupyter lab",
        )
    if kernelspec_program is None:
        return Finding(name, "fail", "there is no kernel named python3", mend)
    # A bare "python" is replaced by the server's own interpreter when the kernel starts.
    bare = re.fullmatch(r"python[\d.]*", kernelspec_program)
    if not bare and not _same(prefix, str(Path(kernelspec_program).parent.parent)):
        return Finding(
            name, "fail", f"the kernel python3 starts {kernelspec_program}, which is not in {prefix}", mend
        )
    if in_notebook and not server_prefixes:
        return Finding(
            name, "ok", "python3 starts this environment (which one the server runs in was not visible)"
        )
    return Finding(name, "ok", "one environment" if in_notebook else "python3 starts this environment")


def check_widget_manager(
    *, extensions: Path, ipywidgets_version: str | None, checkout: Path | None
) -> Finding:
    """The two lab extensions that draw widgets are in this environment and fit the installed ipywidgets."""
    name = "widget manager"
    packages = ["ipywidgets", "jupyterlab_widgets", "anywidget"]
    mend = _in_checkout(
        _python(
            *("-m", "pip", "install", "--force-reinstall", "--no-deps"),
            *(("-c", "constraints.txt") if checkout else ()),
            *packages,
        ),
        checkout,
    )
    if ipywidgets_version is None:
        return Finding(
            name, "fail", "ipywidgets is not installed", _reinstall(checkout, ["ipywidgets>=8.1,<9"])
        )
    manager, anywidget = (
        _extension_version(extensions / extension)
        for extension in ("@jupyter-widgets/jupyterlab-manager", "anywidget")
    )
    missing = [
        extension
        for extension, version in (("@jupyter-widgets/jupyterlab-manager", manager), ("anywidget", anywidget))
        if version is None
    ]
    if missing:
        return Finding(
            name, "fail", f"lab extension not found: {', '.join(missing)}; widgets stay blank", mend
        )
    wanted = MANAGER_MAJOR.get(int(ipywidgets_version.split(".")[0]))
    versions = f"ipywidgets {ipywidgets_version} with jupyterlab-manager {manager}"
    if wanted is None or not str(manager).startswith(f"{wanted}."):
        expected = f"jupyterlab-manager {wanted}" if wanted else "ipywidgets 8"
        return Finding(name, "fail", f"{versions}; expected {expected}", mend)
    return Finding(name, "ok", f"{versions}, anywidget {anywidget}")


# ---------------------------------------------------------------- what the checks look at


def find_checkout(starts: Iterable[Path]) -> Path | None:
    """The first directory at or above one of `starts` that is a checkout of this project."""
    for start in starts:
        for folder in (start, *start.parents):
            project = folder / "pyproject.toml"
            if not (folder / "constraints.txt").is_file() or not project.is_file():
                continue
            if f'name = "{DISTRIBUTION}"' in project.read_text(encoding="utf-8"):
                return folder
    return None


def _lines(text: str) -> list[str]:
    return [line for line in (line.split("#")[0].strip() for line in text.splitlines()) if line]


def _applying(requirements: Sequence[str], *, extra: str = "") -> list[Any]:
    """The requirements whose markers hold here, those of the one extra among them."""
    from packaging.requirements import Requirement

    parsed = [Requirement(line) for line in requirements]
    return [each for each in parsed if each.marker is None or each.marker.evaluate({"extra": extra})]


def _installed() -> dict[str, str]:
    from packaging.utils import canonicalize_name

    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            # The first on the path is the one that is imported.
            found.setdefault(canonicalize_name(name), distribution.version)
    return found


def _same(first: str, second: str) -> bool:
    return os.path.realpath(first) == os.path.realpath(second)


def _extension_version(folder: Path) -> str | None:
    description = folder / "package.json"
    if not description.is_file():
        return None
    return str(json.loads(description.read_text(encoding="utf-8"))["version"])


def server_prefixes(cmdline: Sequence[str], *, cwd: str, path: str | None) -> list[str]:
    """The environments that a server started with `cmdline` may belong to.

    Both its interpreter and its script are asked: on macOS the interpreter of a virtual environment
    replaces itself by the framework's, and the script of a system-wide server may lie in /usr/local.
    """
    prefixes = []
    for word, pattern in zip(cmdline, (r"python[\d.]*(\.exe)?", r"jupyter.*"), strict=False):
        found = word if os.sep in word else shutil.which(word, path=path)
        if found and re.fullmatch(pattern, Path(found).name):
            # Without resolving links: the interpreter of a virtual environment is a link out of it.
            prefixes.append(str((Path(cwd) / found).parent.parent))
    return prefixes


def _parent_prefixes() -> list[str]:
    import psutil

    try:
        parent = psutil.Process().parent()
        if parent is None:
            return []
        return server_prefixes(parent.cmdline(), cwd=parent.cwd(), path=parent.environ().get("PATH"))
    except psutil.AccessDenied:
        return []


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _kernelspec_program() -> str | None:
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    try:
        return KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return None


def _versions_here(checkout: Path | None) -> Finding:
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return Finding("package versions", "fail", f"{DISTRIBUTION} is not installed", _reinstall(checkout))
    constraints = (checkout / "constraints.txt").read_text(encoding="utf-8") if checkout else None
    return check_versions(
        requirements=requirements, constraints=constraints, installed=_installed(), checkout=checkout
    )


def _kernel_here() -> Finding:
    in_notebook = _in_notebook()
    return check_kernel(
        prefix=sys.prefix,
        in_notebook=in_notebook,
        server_prefixes=_parent_prefixes() if in_notebook else [],
        kernelspec_program=_kernelspec_program(),
        python=sys.executable,
    )


def _widgets_here(checkout: Path | None) -> Finding:
    return check_widget_manager(
        extensions=Path(sys.prefix, "share", "jupyter", "labextensions"),
        ipywidgets_version=_installed().get("ipywidgets"),
        checkout=checkout,
    )


def guarded(name: str, check: Callable[[], Finding], *, mend: str) -> Finding:
    """The finding of `check`, or a failed one that names the exception: one broken check hides no other."""
    try:
        return check()
    except ModuleNotFoundError as error:
        return Finding(name, "fail", f"{error.name} is not installed (ModuleNotFoundError)", mend)
    except Exception as error:
        return Finding(name, "fail", f"this check itself failed with {type(error).__name__}: {error}", mend)


def examine(*, start: Path | None = None) -> list[Finding]:
    """Every finding about this environment, in a fixed order. Never raises.

    The checkout is looked for upward from `start`, by default from this package and then from the
    working directory; without one, versions are compared with the ranges that the package asks for.
    """
    starts = [start] if start is not None else [Path(__file__).resolve().parent, Path.cwd()]
    checkout = find_checkout(starts)
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("Python", lambda: check_python(sys.version_info[:3], checkout=checkout)),
        ("package versions", lambda: _versions_here(checkout)),
        ("kernel and server", _kernel_here),
        ("widget manager", lambda: _widgets_here(checkout)),
    ]
    return [guarded(name, check, mend=_reinstall(checkout)) for name, check in checks]


def report() -> Findings:
    """The findings about this environment, to be the last line of a notebook cell."""
    return Findings(tuple(examine()))


def print_findings(findings: Sequence[Finding], *, details: bool = False) -> None:
    """One green line where all is well; else, or for `details`, each finding, and the commands unwrapped to copy."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:  # the doctor has to speak in an environment that lacks rich, too
        print(Findings(tuple(findings)))
        return
    console = Console()
    in_order = Findings(tuple(findings)).in_order
    if in_order and not details:
        console.print(Text(in_order, style="green"), soft_wrap=True)
        return
    styles = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    table = Table("", "check", "what was found")
    for finding in findings:
        table.add_row(Text(finding.status, style=styles[finding.status]), finding.name, Text(finding.detail))
    console.print(table)
    for finding in findings:
        if finding.mend:
            console.print(Text(f"To fix {finding.name}:\n  {finding.mend}"), soft_wrap=True)


def main(*, details: bool = False) -> int:
    """Print the findings about this environment; 1 where one of them is a failure, else 0."""
    findings = examine()
    print_findings(findings, details=details)
    return int(any(finding.status == "fail" for finding in findings))


if __name__ == "__main__":
    raise SystemExit(main(details="--details" in sys.argv[1:]))
