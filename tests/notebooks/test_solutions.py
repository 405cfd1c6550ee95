"""The plugin that inserts the reference solutions finds one that is not right.

That all of them are right is shown by `make notebooks`, which runs every notebook with the plugin.
"""

import subprocess
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
# Exercise 00.1 is judged as ever; the judge of 00.2 finds no answer right.
JUDGE = """from course_lib.lessons.start_here import EXERCISES as exercises


class Judge:
    def check(self, answer):
        print("Exercise 00.2:", "not attempted yet." if answer is ... else "wrong.")


exercises["00.2"] = Judge()"""


def cell(source: str, count: int, said: str = "", **metadata: str):
    outputs = [nbformat.v4.new_output("stream", name="stdout", text=said)] if said else []
    return nbformat.v4.new_code_cell(source, outputs=outputs, execution_count=count, metadata=metadata)


def test_a_reference_that_is_not_right_fails_the_run(tmp_path):
    answers = [
        cell(
            f'answer = ...\nexercises["{number}"].check(answer)',
            count,
            f"Exercise {number}: not attempted yet.\n",
            exercise=number,
        )
        for count, number in enumerate(("00.1", "00.2"), start=2)
    ]
    notebook = nbformat.v4.new_notebook(cells=[cell(JUDGE, 1), *answers])
    notebook.metadata = {"course": {"slug": "start_here"}, "kernelspec": {"name": "python3"}}
    nbformat.write(notebook, tmp_path / "00_small.ipynb")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.notebooks.solutions",
        "-p",
        "no:cacheprovider",
    ]
    command += ["--nbval", "--nbval-current-env", "--rootdir", str(tmp_path), str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "Cell 2, exercise 00.2 solved" in run.stdout
    assert "1 failed, 4 passed" in run.stdout.splitlines()[-1]
