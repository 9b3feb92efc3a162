# Everything a developer runs, by name. `make` alone lists it.

GOLANGCI  := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BENCHSTAT := go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

# Knobs: make fuzz FUZZTIME=10m, make bench BENCH=Lifecycle, make bench-compare REF=v0.1.0
FUZZTIME ?= 30s
BENCH    ?= .
COUNT    ?= 10
REF      ?= main
PKG      ?= ./...
SEEDS    ?= 1..100000

.DEFAULT_GOAL := help
.PHONY: help fmt vet lint test race fuzz bench bench-compare mutants campaign check ci

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

fmt: ## format all Go files
	gofmt -s -w $$(git ls-files '*.go')

vet: ## run go vet
	go vet ./...

lint: ## run golangci-lint, all of its checks but those that .golangci.yml excuses
	$(GOLANGCI) run ./...

test: ## run the tests, golden traces, examples and the checks of the docs
	go test ./...

race: ## run the tests under the race detector, with all invariants checked
	go test -race ./...

fuzz: ## fuzz each target for FUZZTIME (30s)
	@go test -list '^Fuzz' ./... \
	| awk '/^Fuzz/ { names[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, names[i]; n = 0 }' \
	| while read -r package target; do \
		echo "$$package $$target"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package" || exit 1; \
	done

bench: ## run the benchmarks that match BENCH (all) in PKG (all)
	go test -run '^$$' -bench '$(BENCH)' -benchmem $(PKG)

bench-compare: ## compare the root package's benchmarks that match BENCH with those of the commit REF (main), COUNT (10) times
	@set -eu; tmp=$$(mktemp -d); trap 'git worktree remove --force $$tmp/ref; rm -rf $$tmp' EXIT; \
	git worktree add --quiet --detach $$tmp/ref $(REF); \
	echo "base: $(REF)"; (cd $$tmp/ref && go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) . >$$tmp/base.txt); \
	echo "head: work tree"; go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) . >$$tmp/head.txt; \
	$(BENCHSTAT) base=$$tmp/base.txt head=$$tmp/head.txt

mutants: ## plant each bug of the zoo and count the seeds it takes to find it
	go run ./cmd/postroom sim mutants

campaign: ## run SEEDS (1..100000) of the simulation with all invariants checked
	go run ./cmd/postroom sim run --seeds $(SEEDS)

check: fmt vet lint race ## what to run before a commit

ci: ## run what the continuous integration runs
	bash .ci/run
