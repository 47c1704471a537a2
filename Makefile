# The two commands: `make demo` runs the main job, `make test` runs the tests. Both prepare what they need
# the first time (see ./run).
SECONDS_OF_DEMO ?= 60
# make demo POLICY=smolvla: a random policy instead of the trained one; FULL=1: of full size.
POLICY ?=
FULL ?=

.PHONY: demo test lint format build clean distclean help

demo:            ## run the simulated robot, the policy and the executor for a minute
	@./run vla_simd demo --duration $(SECONDS_OF_DEMO) $(if $(POLICY),--policy $(POLICY)) $(if $(FULL),--full)

test:            ## run the test suite
	@./run pytest

lint:            ## linter, formatter and type checker
	@./run --with lint ruff check .
	@./run --with lint ruff format --check .
	@./run --with lint mypy

format:          ## reformat the Python sources
	@./run --with lint ruff format .
	@./run --with lint ruff check --fix .

build:           ## prepare the environment and build, run nothing
	@./run true

clean:           ## remove the build
	rm -rf build install log .env/stamps/build

distclean: clean ## remove the environment too
	rm -rf .env

help:            ## list these targets
	@sed -n 's/^\([a-z]*\): .*## /\1: /p' Makefile
