# Every target makes its own environment in .venv: with uv when it is there, else with venv and pip.
# Python 3.11 or newer is all that has to be installed:  make test PYTHON=python3.12

PYTHON  ?= python3
WORKERS ?= 4

VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready

export UV_PYTHON_DOWNLOADS := never
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Many tests start hookline as a program of its own, which should not have to be compiled each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test plain test-real bench lint docs clean

help:
	@echo "make demo       show hookline at work, offline"
	@echo "make test       lint, and every test that needs only Python"
	@echo "make test-real  the tests that need more: containers, a cluster, other agents"
	@echo "make bench      measure hookline beside its peers"
	@echo "make lint       ruff and pyright"
	@echo "make docs       write the generated reference pages"
	@echo "make clean      remove environments and caches"

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("hookline needs Python 3.11 or newer, this is %d.%d; set PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@rm -rf $(VENV)
	@if command -v uv >/dev/null 2>&1; then \
		echo "==> making $(VENV) with uv"; \
		uv venv --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(VENV) && \
		uv pip install --quiet --python $(BIN)/python --build-constraints constraints.txt \
			--constraints constraints.txt --editable '.[dev]'; \
	else \
		echo "==> making $(VENV) with venv and pip"; \
		$(PYTHON) -m venv $(VENV) && \
		PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
			$(BIN)/python -m pip install --quiet --editable '.[dev]'; \
	fi
	@touch $@

demo: $(READY)
	@echo "==> demo"
	@$(BIN)/python examples/demo.py

lint: $(READY)
	@echo "==> ruff check"
	@$(BIN)/ruff check .
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "==> pyright"
	@$(BIN)/pyright

# Hooks of the tests call `python3`, which may be a version manager's script that is slow to start.
plain test-real: export PATH := $(CURDIR)/$(BIN):$(PATH)

# Beside each other: pyright uses one core.
test: $(READY)
	@$(MAKE) --no-print-directory --jobs=2 lint plain

plain: $(READY)
	@echo "==> pytest: every test that needs only Python"
	@$(BIN)/python -m pytest -m "not real" --workers $(WORKERS)

# Those that share a cluster one after another, and beside them those that share an engine and the machine.
test-real: $(READY)
	@echo "==> pytest: the tests that need more than Python"
	@$(BIN)/python tools/real.py

bench: $(READY)
	@echo "==> bench"
	@$(BIN)/python bench/run.py

docs: $(READY)
	@echo "==> docs/reference: statements, rules and openings with their tests"
	@$(BIN)/python tools/pages.py --write
	@echo "==> deploy/chart/hookline: definitions, rights and Deployment"
	@$(BIN)/python tools/chart.py --write

clean:
	@echo "==> removing environments, caches and builds"
	@rm -rf $(VENV) .bench .pytest_cache .ruff_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
