# make demo | test | slow | lint | accuracy | wheel-check | clean
#
# Everything runs in .venv, which the first target that needs it creates. Only Python >= 3.11 and
# make have to be there; PYTHON picks the interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_OP := mla_prolog_v3
DEMO_CASE := seed_a2_int8
DEMO_CHIP := ascend910b1
# Two workers, each with one BLAS thread: results do not depend on it, the machine's load does.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.NOTPARALLEL:
.PHONY: demo test slow lint accuracy wheel-check clean

demo: $(VENV)/.installed
	$(BIN)/npusim warmup
	$(BIN)/npusim run $(DEMO_OP) --case $(DEMO_CASE) --chip $(DEMO_CHIP) --order both

test: $(VENV)/.installed-dev
	$(PYTEST)

slow: $(VENV)/.installed-dev
	$(PYTEST) -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

accuracy: $(VENV)/.installed-dev
	$(BIN)/npusim validate --quick --check

wheel-check: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -m "slow or not slow" tests/test_packaging.py

clean:
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "npusim needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	         "Name another one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(VENV)/.installed $@
