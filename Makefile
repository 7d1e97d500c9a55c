# `make run` and `make test` need Python 3.11 and make, nothing else.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Hundreds of processes start in a test run. Without compiled modules each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test campaign check lint types imports clean docs

run: $(STAMP)  ## set up, then answer a two-step question with the embedded model
	PLAIT_GUIDE=1 $(BIN)/plait run "How many more people live in Lyon than in Nice?" \
		--tools lookup:examples/cities.json --tools calculator

test: $(STAMP)  ## all tests, on all cores; fetches the small test model once
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

campaign: $(STAMP)  ## long tests: kills, fuzzing, damage and load; `make campaign ARGS=--short` takes a minute
	$(BIN)/python tests/campaign $(ARGS)

check: lint types imports

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## of the source, and of a program that uses it
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/check_typing.py

imports: $(STAMP)
	$(BIN)/lint-imports

docs: $(STAMP)  ## write the generated reference pages anew
	$(BIN)/python docs/generate_reference.py

$(STAMP): pyproject.toml constraints.txt
	@echo "setting up the environment $(VENV) (a few minutes the first time)"
	@began=$$(date +%s); \
	$(PYTHON) -m venv $(VENV) && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]" && \
	echo "setting up the environment: $$(($$(date +%s) - began)) s"
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis
