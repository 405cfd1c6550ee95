# Two commands: `make lab` opens the course, `make test` checks everything in it (`make quick`: what changed).
# Both need Python 3.11 to 3.14 and make, nothing else; without make, setup_course.py does what `make lab` does.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
READY := .venv/.ready-test
PEERS ?=
LAB_ARGS ?=
SITE_ARGS ?=
TEACHER_ARGS ?=
# Matplotlib's list of fonts belongs to this environment: a list that another one left may name files that are gone.
export MPLCONFIGDIR := $(CURDIR)/.venv/matplotlib
# Many containers forbid Python to keep what it compiles. Then each of the hundreds of processes that the tests start would
# compile torch and transformers again, which takes longer than to load them. Kept is only what lies in this folder.
unexport PYTHONDONTWRITEBYTECODE
# What stands after `bench` names parts: the list of them is that of `python -m benchmarks --list`.
BENCH_PARTS := $(if $(filter bench,$(MAKECMDGOALS)),$(filter-out bench,$(MAKECMDGOALS)))

# Modules that annotate shapes: the unit tests check these at every call. All others would run for nothing through
# the same wrappers, several times slower.
SHAPED = $(shell grep -rl --include="*.py" "^from jaxtyping" course_lib | sort | sed 's|\.py$$||; s|/__init__$$||; s|/|.|g' | paste -sd, -)

# What the parts of the tests look at, all of it unless told otherwise: make unit UNIT=tests/sae
UNIT = tests --ignore=tests/browser --ignore=tests/editions/site/pages --ignore=tests/editions/teacher/pages
NOTEBOOKS = notebooks
BROWSER = tests/browser

.PHONY: help lab test quick store figures pictures bench mutants faults renumber doctor update site site-test statements teacher teacher-test grading-test wheel-test lint unit notebooks browser $(BENCH_PARTS)

help:
	@echo "make lab      set up and open the course in JupyterLab (LAB_ARGS=... passes arguments on; PEERS=1: also what"
	@echo "              single lessons compare with)"
	@echo "make update   bring the newest edition and keep your answers; close JupyterLab first"
	@echo "make test     set up and check everything: lint, unit tests, notebooks, browser"
	@echo "make quick    the same for what changed since the last commit, and something small of each part"
	@echo "make store    run the notebooks and store them as they ran (LESSONS=\"01 19\": some of them)"
	@echo "make statements  write what exercises ask to their pages, and run nothing (LESSONS=\"01 19\": some of them)"
	@echo "make figures  draw every lesson's figures to figures/"
	@echo "make pictures redraw the pictures of the README in a browser"
	@echo "make site     build the course as static pages in build/site/ (SITE_ARGS=... passes arguments on)"
	@echo "make teacher  build plans, solutions, banks and slides in build/teacher/ (TEACHER_ARGS=\"19 21\": some lessons)"
	@echo "make bench    run the benchmarks (make bench explorer: one part)"
	@echo "make mutants  plant slips in copies of the library and in the lessons' experiments, and show which are noticed"
	@echo "make faults   damage files that are read back, and show what is noticed; writes the table of docs/pipeline.md"
	@echo "make renumber give every lesson the number of its place in the catalogue, wherever it is named"
	@echo "make doctor   say what is wrong with this environment and how to fix it"

# What is installed, and whether anything has to be, setup_course.py knows.
SET_UP = @$(or $(PYTHON),false) -c "" 2>/dev/null || { \
	echo "No Python 3.11 to 3.14 was found$(if $(PYTHON), at $(PYTHON),). Name one: make lab PYTHON=/path/to/python"; exit 1; }; \
	$(PYTHON) setup_course.py

lab:
	$(SET_UP) $(if $(PEERS),--peers) -- $(LAB_ARGS)

# The stamp is newer than the files that decide what is installed: a second call installs nothing.
$(READY): pyproject.toml constraints.txt lab-settings.json
	$(SET_UP) --only test

# Runs the four parts below one after the other, and says at the end how long each took and which failed.
test quick: $(READY)
	@$(BIN)/python -m tests.parts $@

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# Answers are judged in forks: in large pages, where Linux grants them, there is far less of a process to copy.
unit: export GLIBC_TUNABLES := glibc.malloc.hugetlb=1
unit: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -p no:nbval --jaxtyping-packages=$(SHAPED),beartype.beartype $(UNIT)

# The two limits, in seconds, guard against a hang only. A plain --nbval run does not need the plugin.
notebooks: $(READY)
	COURSE_PROGRESS=$$(mktemp -d)/progress.json $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder \
		--nbval --nbval-current-env --nbval-sanitize-with tests/notebooks/sanitize.cfg -p tests.notebooks.solutions -p tests.notebooks.kernels --nbval-cell-timeout 900 \
		--nbval-kernel-startup-timeout 900 $(NOTEBOOKS)

browser: $(READY)
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup $(BROWSER)

# Trusted as by `make lab`: what notebook 00 says of the environment is stored with it.
store: $(READY)
	$(BIN)/jupyter trust notebooks/*.ipynb
	$(BIN)/python -m tests.notebooks $(LESSONS)

statements: $(READY)
	$(BIN)/python -m tests.notebooks --statements $(LESSONS)

figures: $(READY)
	$(BIN)/python -m course_lib figures

pictures: $(READY)
	$(BIN)/python -m pytest -q -p no:nbval tests/browser/pictures.py

site: $(READY)
	$(BIN)/python -m course_lib site $(SITE_ARGS)

# Builds the site, and opens its pages in Chromium.
site-test: site
	$(BIN)/python -m pytest -q -n 2 -p no:nbval tests/editions/site/pages

teacher: $(READY)
	$(BIN)/python -m course_lib teacher $(TEACHER_ARGS)

# Builds three lessons of it, and opens every page of these in Chromium.
teacher-test: $(READY)
	$(BIN)/python -m course_lib teacher $(or $(TEACHER_ARGS),00 01 15)
	$(BIN)/python -m pytest -q -n 2 -p no:nbval tests/editions/teacher/pages

# nbgrader puts a menu into the JupyterLab of its environment, so it gets one of its own, on top of the course's.
.venv/grading/.ready: $(READY)
	$(BIN)/python -m venv .venv/grading
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> "$$(.venv/grading/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/course.pth"
	.venv/grading/bin/python -m pip install --disable-pip-version-check --no-compile -q -c constraints.txt -e ".[grading]"
	touch $@

# Hands lessons out through nbgrader itself, and lets it grade right, wrong and empty answers.
grading-test: .venv/grading/.ready
	JUPYTER_PATH="$(CURDIR)/.venv/share/jupyter" .venv/grading/bin/python -m pytest -q -p no:nbval tests/editions/grading/test_hand_out.py

# Builds the wheel, installs it and nothing else of this project outside the checkout, and uses it there.
wheel-test: $(READY)
	$(BIN)/python -m tests.wheel

faults: $(READY)
	$(BIN)/python -m tests.faults --page
	$(BIN)/python -m tests.kills --page

doctor:
	$(SET_UP) --only lab
	$(BIN)/python -m course_lib doctor --details

update:
	$(SET_UP) --only lab
	$(BIN)/python -m course_lib update

bench: $(READY)
	$(BIN)/python -m benchmarks $(BENCH_PARTS)

mutants: $(READY)
	$(BIN)/python -m tests.mutants
	$(BIN)/python -m tests.notebooks.neighbours

renumber: $(READY)
	$(BIN)/python -m tests.renumber

# `make bench explorer` names a part of the benchmarks: the part itself is no target of its own.
$(BENCH_PARTS):
	@:
