# `make` prints the targets. A plain user needs Go for `make demo`, and Go, Java and Maven for
# `make test`, which fetches real servers into a cache outside the tree and runs them.
# Whoever changes .proto files needs node as well: `make gen` uses buf, which npm provides.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

FUZZTIME  ?= 20s
COUNT     ?= 1
PKG       ?= ./...
ARGS      ?=
KAFKA     ?=
MINUTES   ?= 10
SEED      ?=
SINKS     ?=
MODE      ?=
BIG       ?=
JSON      ?=
KEEP      ?=
SEEDS     ?= 100
HOURS     ?= 1
ALL       ?=
ONLY      ?=
TURN      ?=

TOOLS     := .tools
BUF       := internal/tools/node_modules/.bin/buf
GOTAGS    := invariants,faults
# Packages tested at once: one more than processors, since many wait for servers. With GOMAXPROCS=1 go test would take one.
ATONCE    := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))
# Order is cheapest first: the sooner a step is red, the less was waited for. The conformance kits run in `test` and `race`.
CI_STEPS  := gen-check breaking tidy-check fmt-check lint repolint test failures secrets race points explore+spec mutants+fuzz torture+jepsen,sim,build-all

##@ For everyone

.PHONY: help
help: ## print the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@printf '\nSettings: PKG=%s COUNT=%s FUZZTIME=%s MINUTES=%s SEEDS=%s HOURS=%s KAFKA= SEED= BIG= ALL= ONLY= ARGS=\n' '$(PKG)' '$(COUNT)' '$(FUZZTIME)' '$(MINUTES)' '$(SEEDS)' '$(HOURS)'

.PHONY: demo
demo: build ## build, then run a coordinator group and a pipeline, and break them (KAFKA=real: on Apache Kafka)
	@bin/unisink demo $(if $(KAFKA),--kafka $(KAFKA)) $(ARGS)

.PHONY: demo-full
demo-full: build ## the same into Kafka, PostgreSQL and files, on both real servers, which are fetched once; they are killed too
	@bin/unisink demo --sinks all --kafka real $(ARGS)

.PHONY: torture
torture: ## kill everything for MINUTES on Apache Kafka, and verify (SEED=, ARGS=; SINKS=all [MODE=staged]: into PostgreSQL as well)
	go run ./tests/jepsen-style/torture -minutes $(MINUTES) $(if $(SINKS),-sinks $(SINKS)) $(if $(MODE),-mode $(MODE)) $(if $(SEED),-seed $(SEED)) $(ARGS)

.PHONY: jepsen
jepsen: ## break networks, disks and processes for three minutes, and judge every call (MINUTES=, SEED=, ARGS=; needs root for networks and disks)
	go run ./tests/jepsen-style/blackbox -minutes $(if $(filter file,$(origin MINUTES)),3,$(MINUTES)) $(if $(SEED),-seed $(SEED)) $(ARGS)

.PHONY: jepsen-long
jepsen-long: ## the same for HOURS
	go run ./tests/jepsen-style/blackbox -hours $(HOURS) $(if $(SEED),-seed $(SEED)) $(ARGS)

.PHONY: test
test: $(if $(JSON),$(TOOLS)/.built) ## everything: the unit tests and the slower ones that start processes
	@$(MAKE) -j2 packages modules

.PHONY: packages
packages: ## the packages of this module alone
ifeq ($(JSON),)
	go test -p $(ATONCE) -shuffle=on -count=$(COUNT) -timeout 15m $(PKG)
else
	@mkdir -p $(dir $(JSON))
	$(TOOLS)/gotestsum --jsonfile $(JSON) --format standard-quiet -- -p $(ATONCE) -shuffle=on -count=$(COUNT) -timeout 15m $(PKG)
endif

.PHONY: modules
modules: ## the examples that are modules of their own, as a user's would be: vet and test
	cd examples/sink-sqlite && go vet ./... && go test -shuffle=on -count=$(COUNT) -timeout 15m ./...

.PHONY: build
build: ## build bin/unisink
	@mkdir -p bin
	go build -trimpath -o bin/ ./cmd/unisink

##@ While working

.PHONY: unit
unit: ## the fast tests: under a minute, no network, no processes
	go test -short -shuffle=on -count=$(COUNT) -timeout 5m $(PKG)

.PHONY: race
race: ## all tests with the race detector, costly invariants and fault points (COUNT=10 before a merge; SHORT=1 leaves out processes)
	@# The rules about the repository read files one after the other, which the detector makes thirty times as slow.
	@# One processor for each package: timers of a synctest bubble that are due at once crash the detector's runtime
	@# when two processors run them (golang/go#78156).
	@# The linters have vetted the same files with the same tags.
	GOMAXPROCS=1 go test -race -vet=off -p $(ATONCE) -parallel 2 $(if $(SHORT),-short) -tags $(GOTAGS) -shuffle=on -count=$(COUNT) -timeout 20m -skip '^TestRepository$$' $(PKG)

.PHONY: points
points: ## the server killed at each crash point of the PostgreSQL adapter (race has the points, but no servers)
	go test -count=1 -tags $(GOTAGS) -timeout 5m -run '^TestEveryStepBearsAKilledServer$$' ./adapters/postgres

.PHONY: failures
failures: $(TOOLS)/.built ## each row of docs/failures.md with the tests that passed for it (KEEP=1: in the last run with JSON=)
	@[[ -n '$(KEEP)' ]] || $(MAKE) test JSON=dist/tests.jsonl
	go run ./internal/failures docs/failures.md dist/tests.jsonl

.PHONY: secrets
secrets: $(TOOLS)/.built ## fail if what the tests print shows a secret that one of them planted (KEEP=1: in the last run with JSON=)
	@[[ -n '$(KEEP)' ]] || $(MAKE) test JSON=dist/tests.jsonl
	go run ./internal/secrets/scan -all dist/tests.jsonl

.PHONY: explore
explore: ## walk the protocol's small cases exhaustively and print what was reached
	@.ci/named-tests Explore -tags $(GOTAGS) -v -timeout 15m -- ./coordinator/...

.PHONY: sim
sim: ## the whole system in virtual time under SEEDS plans of faults, from SEED on (SEEDS=1 replays one; ARGS=-trace shows it)
	@cd tests/jepsen-style/sim && go test -count=$(COUNT) -timeout 0 -run '^TestSimulation$$' -args -seeds $(SEEDS) $(if $(SEED),-seed $(SEED)) $(ARGS)

.PHONY: spec
spec: ## check the protocol's model, and that it misses each rule taken away (needs spin; BIG=1 for the larger case)
	BIG=$(BIG) coordinator/ledger/spec/run
	UNISINK_SPEC=1 go test -count=1 -run TestModelAcceptsTheMachine ./coordinator/ledger

.PHONY: mutants
mutants: ## switch protections off one by one, each must be missed by its check (a minute's worth; ALL=1, ONLY=name)
	go run ./tests/jepsen-style/mutants $(if $(ALL),-all) $(if $(ONLY),-only $(ONLY)) $(ARGS)

.PHONY: conformance
conformance: ## the conformance kits against every adapter, source and sink (SHORT=1 leaves out real servers and processes)
	@.ci/named-tests Conform $(if $(SHORT),-short) -tags $(GOTAGS) -timeout 15m -- ./adapters/... ./participant/... ./processor/... ./examples/... ./cmd/skeleton

.PHONY: fuzz
fuzz: ## every fuzz target, each for FUZZTIME (TURN=n: those that are quick to compile, and one package more)
	@.ci/fuzz $(FUZZTIME) $(TURN)

.PHONY: bench
bench: build $(TOOLS)/.built ## benchmarks of the packages, then decisions per second of three nodes
	@mkdir -p dist
	go test -run '^$$' -bench . -benchmem -count=$(COUNT) -timeout 30m $(PKG) | tee dist/bench.txt
	@$(TOOLS)/benchstat dist/bench.txt
	@bin/unisink bench decide $(ARGS)

.PHONY: fmt
fmt: $(TOOLS)/.built ## format the Go files and order their imports
	$(TOOLS)/golangci-lint fmt

.PHONY: lint
lint: $(TOOLS)/.built ## the linters of .golangci.yml
	$(TOOLS)/golangci-lint run $(PKG)

.PHONY: repolint
repolint: ## the tests about the repository itself: imports, package docs, sizes, words
	go test -count=1 ./internal/repolint

.PHONY: gen
gen: $(BUF) $(TOOLS)/.built ## lint the .proto files and generate their Go code
	$(BUF) lint
	$(BUF) generate

.PHONY: baseline
baseline: $(BUF) ## at a release: make today's .proto files what `breaking` compares with
	@.ci/breaking write $(BUF)

.PHONY: tools
tools: $(TOOLS)/.built ## build the pinned tools into .tools (a minute or two the first time)

.PHONY: hooks
hooks: ## let git run .githooks before each commit and push
	git config core.hooksPath .githooks

.PHONY: clean
clean: ## remove what make built, tools included
	rm -rf bin dist $(TOOLS) internal/tools/node_modules

##@ What CI checks

.PHONY: ci
ci: ## all that must be green, in order; a red step says how to repeat it
	@.ci/steps $(CI_STEPS)

.PHONY: gen-check
gen-check: $(BUF) $(TOOLS)/.built ## fail if the generated code is not what the .proto files say
	@$(BUF) lint
	@.ci/gen-check $(BUF)

.PHONY: breaking
breaking: $(BUF) ## fail if a .proto change breaks the wire, or anything stored
	@.ci/breaking check $(BUF)

.PHONY: tidy-check
tidy-check: ## fail if go.mod or go.sum is not tidy, here or in a module below
	go mod tidy -diff
	cd internal/tools && go mod tidy -diff
	cd examples/sink-sqlite && go mod tidy -diff

.PHONY: fmt-check
fmt-check: $(TOOLS)/.built ## fail if `make fmt` would change a file
	@$(TOOLS)/golangci-lint fmt --diff

.PHONY: build-all
build-all: ## build every package and command, with and without fault points and mutants
	go build ./...
	@# Commands are compiled, and not linked again.
	go list -export -tags $(GOTAGS) ./... >/dev/null
	go list -export -tags $(GOTAGS),mutants ./... >/dev/null

# What is built once, and again when its pin changes.

$(TOOLS)/.built: internal/tools/go.mod internal/tools/go.sum
	@echo 'building the pinned tools into $(TOOLS)'
	@mkdir -p $(TOOLS)
	@cd internal/tools && go build -trimpath -o $(CURDIR)/$(TOOLS)/ tool
	@touch $@

$(BUF): internal/tools/package.json internal/tools/package-lock.json
	@command -v npm >/dev/null || { echo 'make: buf comes from npm, which is not installed; install node and npm (only work on .proto files needs them)' >&2; exit 1; }
	@cd internal/tools && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
