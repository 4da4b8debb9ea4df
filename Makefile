# make help lists the targets for every day, make help-all the rest. Only Go, git, make and (for
# -race) a C compiler are needed; the tools are pinned in go.mod and tools/*/go.mod and come through
# the Go module proxy.

GO      ?= go
# What runs the tests of CI's steps. CI has tools/skips run it, which judges what is skipped.
GO_TEST ?= $(GO) test
BUF  := $(GO) tool -modfile=tools/buf/go.mod buf
LINT := $(GO) tool -modfile=tools/lint/go.mod golangci-lint
HELM := $(GO) tool -modfile=tools/helm/go.mod helm

# The race detector needs a C compiler. Without one the tests run without it, and say so.
CC_FOUND := $(shell command -v $$($(GO) env CC) 2>/dev/null)
RACE     := $(if $(CC_FOUND),-race)

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
COMMIT   ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
TARGETS  ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64
FUZZTIME ?= 10s
# The packages that hold lent memory: see core/buffer.
LENT     := ./core/buffer ./core/conn ./core/operation ./core/cursor ./service/call ./service/stream \
	./service/paging ./service/cursor ./service/document ./service/dataapi ./service/servicetest
CHAOS    ?= 10m
SOAK     ?= 1000000
MUTANTS  ?= 100
ONE_IN   ?= 1
ONCE     ?= 100000
WATCHERS ?= 1000
SUBSCRIBERS ?= 10000
BANK     ?= 5m
PAGERS   ?= 10m
ATTACK   ?= 5
WORST    ?= 1
SERIES   ?= 10m
SEEDS    ?= 20
FIRST    ?= 1
CALLS    ?= 500
# What tools/prose reads: everything but gen/ and third_party/.
PLAIN    := . client/... clients/... cmd/... core/... deploy/... docs/... examples/... internal/... lab/... proto/... \
	service/... tools/...
# lab's packages whose tests use the server of MOORING_TEST_URI.
ON_SERVER = $(shell cd lab && grep -lrE 'MOORING_TEST_URI|suite\.(URI|Address|Direct|IsEmbedded)\b' \
	--include='*_test.go' . | xargs -n1 dirname | sort -u)
# Runs a target of these on PostgreSQL with DocumentDB, if MOORING_TEST_URI names no other server.
ON_ENGINE = cd lab && $(GO) run ./cmd/docdb $(MAKE) --no-print-directory -C .. $@
# The profile that test-unit writes, if it is named, for `make coverage`.
COVER    ?=

.DEFAULT_GOAL := help

# A target with ### is for every day. The others are in help-all, under their headings.
.PHONY: help
help: ## list the targets for every day
	@awk -F ':.*### ' '/^[a-z-]+:.*### / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\n%s\n' 'make help-all lists the others, the experiments included.'

.PHONY: help-all
help-all: ## list all targets under their headings
	@awk -F ':.*##+ ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Build and run

.PHONY: build
build: bin/mooring ### build the gateway as bin/mooring

.PHONY: bin/mooring
bin/mooring:
	@mkdir -p bin
	GO="$(GO)" VERSION=$(VERSION) COMMIT=$(COMMIT) tools/build.sh $@

.PHONY: run
run: bin/mooring ### start the gateway on an embedded database with sample data (PORT= GRPC_PORT= ARGS=)
	@echo "building the embedded database (about 90 s the first time) ..."
	@mkdir -p bin/lab
	cd lab && CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -o ../bin/lab/ ./cmd/embedded ./cmd/run
	@exec bin/lab/run --gateway bin/mooring --embedded bin/lab/embedded \
		$(if $(PORT),--port $(PORT)) $(if $(GRPC_PORT),--grpc-port $(GRPC_PORT)) -- $(ARGS)

.PHONY: console
console: ## build the console from web/ into service/console/dist, which is committed (npm)
	GO="$(GO)" tools/console.sh build

.PHONY: console-lighthouse
console-lighthouse: ## judge the console's first view by Lighthouse (npm, chromium)
	cd lab && LAB_LIGHTHOUSE=1 $(GO) test -count=1 -v -run TestLighthouse ./console

.PHONY: console-check
console-check: ## fail if service/console/dist is not what web/ gives (npm; without it: says so)
	GO="$(GO)" tools/console.sh check

.PHONY: clean
clean: ### remove what make built
	rm -rf bin dist

##@ Before you push

.PHONY: check
check: test-unit lint generate-check layers conformance mutate-short ### the short form of what CI runs

.PHONY: test
test: test-unit test-lab ### unit tests, specification cases, and lab's tests on a real server

.PHONY: test-unit
test-unit: ### unit tests and specification cases
ifeq ($(RACE),)
	@echo "no C compiler found: the tests run WITHOUT the race detector"
endif
	$(GO_TEST) $(RACE) $(if $(COVER),-coverprofile=$(COVER)) ./...

.PHONY: test-poison
test-poison: ## the tests of what holds lent memory, which is overwritten when it is taken back
	$(GO_TEST) $(RACE) -tags poison $(LENT)

.PHONY: coverage
coverage: ## the coverage of the last run with COVER=coverage.txt: total and lowest packages
	@tools/coverage.sh $(or $(COVER),coverage.txt)

.PHONY: attack
attack: ## what hostile clients cost: each attack five times (ATTACK=5), a table of memory and p99
	cd lab && LAB_ATTACK=$(ATTACK) $(GO) test -count=1 -timeout 2h -v -skip TestNeighbours ./attack

.PHONY: neighbours
neighbours: ## what 15 forms of a hostile tenant cost a quiet one, each ATTACK=5 times: p99, refusals
	cd lab && LAB_ATTACK=$(ATTACK) $(GO) test -count=1 -timeout 2h -v -run TestNeighbours ./attack

.PHONY: worst
worst: ## the largest requests in their worst shapes, every RPC and protocol: memory, CPU (WORST=1: all; SHARD=1/100, WITHIN=5m, SEED=1, ROW=)
	cd lab && WORST=$(WORST) SHARD=$(SHARD) WITHIN=$(WITHIN) SEED=$(SEED) ROW="$(ROW)" $(GO) test -count=1 -timeout 24h -v ./worst

.PHONY: test-lab
test-lab: ### lab's tests: MOORING_TEST_URI, or the embedded database
	cd lab && $(GO_TEST) $(RACE) -count=1 -timeout 40m ./...

.PHONY: test-server
test-server: ## the tests that use a server, on that of MOORING_TEST_URI, or on the engine of LAB_DOCDB
ifdef MOORING_TEST_URI
	$(GO_TEST) $(RACE) -count=1 -run TestLive ./core/client
	cd lab && $(GO_TEST) $(RACE) -count=1 -timeout 40m $(filter-out ./injections,$(ON_SERVER))
	cd lab && $(GO_TEST) $(RACE) -count=1 -timeout 40m ./injections # alone: it compares all that is there
else
	$(ON_ENGINE)
endif

.PHONY: conformance
conformance: ### the specifications' own tests as a table (of SPECIFICATIONS_DIR; WITHOUT=1: there is none)
	@$(GO) run ./tools/conformance $(if $(WITHOUT),-without)

.PHONY: conformance-full
conformance-full: ## the same, the suites about data also on the server of test-server
ifdef MOORING_TEST_URI
	@$(GO) run ./tools/conformance -full
else
	@$(ON_ENGINE)
endif

.PHONY: lint
lint: ### plain English, golangci-lint, buf lint and format, helm lint
	$(GO) run ./tools/prose $(PLAIN)
	$(LINT) run ./...
	cd lab && $(GO) tool -modfile=../tools/lint/go.mod golangci-lint run ./...
	$(BUF) lint
	$(BUF) format -d --exit-code proto
	@for values in deploy/helm/mooring/ci/*.yaml; do \
		$(HELM) lint --strict --quiet deploy/helm/mooring -f $$values || exit 1; \
	done

.PHONY: layers
layers: ## ask the go command what core, service and the gateway depend on
	tools/layers.sh

.PHONY: vulnerabilities
vulnerabilities: ## compare the dependencies with the Go vulnerability database (reports only)
	@GO="$(GO)" tools/vulnerabilities.sh

##@ The API

.PHONY: generate
generate: ### regenerate gen/ from proto/
	tools/generate.sh

.PHONY: generate-check
generate-check: generate ## fail if gen/ differs from what proto/ gives
	@git diff --exit-code --stat -- gen || \
		{ echo "gen/ is out of date: run make generate and commit"; exit 1; }
	@test -z "$$(git ls-files --others --exclude-standard -- gen)" || \
		{ echo "gen/ has files that are not committed"; exit 1; }

.PHONY: openapi-check
openapi-check: ## check openapi.json with redocly and a typed client (npm; without it: says so)
	tools/openapi-check.sh

.PHONY: breaking
breaking: ## compare the API with the newest release tag (reports only where there is none)
	tools/breaking.sh

.PHONY: helm-check
helm-check: ## render the chart with eight files of values, decode all manifests strictly, run the Pod
	cd tools/helm && $(GO_TEST) -count=1 ./...
	MOORING_TEST_HELM=1 $(GO_TEST) -count=1 ./deploy/...

.PHONY: kube-check
kube-check: ## apply the chart's manifests to a real API server (dry run), restricted Pods enforced; minutes
	@GO="$(GO)" tools/kube/check.sh

##@ Release

.PHONY: release
release: ### build dist/: binaries of TARGETS, image, checksums, bills of materials, chart, unit
	GO="$(GO)" VERSION=$(VERSION) COMMIT=$(COMMIT) tools/release.sh dist $(TARGETS)

.PHONY: release-check
release-check: release ## make the release again, elsewhere and without a cache: the same bytes?
	GO="$(GO)" VERSION=$(VERSION) COMMIT=$(COMMIT) tools/release-again.sh dist $(TARGETS)

##@ Experiments (minutes to hours)

.PHONY: bench
bench: bin/mooring ### what requests cost, beside the least that they can and a thin gateway (ARGS=--full)
	cd lab && $(GO) run ./cmd/bench --gateway ../bin/mooring $(ARGS)

# The results that docs/performance.md and README.md show.
PERFORMANCE := cmd/bench/testdata/performance.json

.PHONY: performance
performance: bin/mooring ## measure what docs/performance.md shows and rewrite it (an hour, on a quiet machine)
	cd lab && $(GO) run ./cmd/bench --gateway ../bin/mooring --only gateway --full --results $(PERFORMANCE)
	@$(MAKE) --no-print-directory performance-pages

.PHONY: performance-pages
performance-pages: ## rewrite the tables and plots of docs/performance.md and README.md from the last results
	cd lab && $(GO) run ./cmd/bench --pages .. --results $(PERFORMANCE)

.PHONY: coldstart
coldstart: bin/mooring ## measure one read of functions that start cold, beside a driver connection of their own
	cd lab && CGO_ENABLED=0 $(GO) run ./cmd/coldstart --gateway ../bin/mooring

.PHONY: collector
collector: ## build the OpenTelemetry Collector, with which TestTraces then runs as well
	$(GO) build -C tools/collector -o ../../bin/otelcol .

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME=10s each
	@GO="$(GO)" tools/fuzz.sh $(FUZZTIME)

.PHONY: policy-model
policy-model: ## compare DECISIONS=1000000 decisions of policies with a model (SEED=1)
	$(GO) test ./service/policy -run TestModel -count=1 -v -timeout 1h \
		-decisions $(or $(DECISIONS),1000000) -model-seed $(or $(SEED),1)

.PHONY: mutate
mutate: ## change the code in MUTANTS=100 places (-1: all; SEED=…), one at a time; a test must fail
	$(GO) run ./tools/mutate -n $(MUTANTS) -one-in $(ONE_IN) $(if $(SEED),-seed $(SEED)) $(PACKAGES)

.PHONY: mutate-short
mutate-short: # what CI runs of it: a sample that changes only where the code does
	@$(MAKE) --no-print-directory mutate MUTANTS=-1 ONE_IN=700

.PHONY: chaos
chaos: ## CHAOS=10m of random elections, hangs, resets and reconfigurations against a model
	MOORING_CHAOS=$(CHAOS) $(GO) test $(RACE) -count=1 -timeout 1h -v -run TestChaos ./core/topology

.PHONY: soak
soak: ## SOAK=1000000 pool operations with random clears, deadlines and lost connections
	MOORING_SOAK=$(SOAK) $(GO) test $(RACE) -count=1 -timeout 1h -v -run TestSoak ./core/pool

.PHONY: failover
failover: ## measure how soon 64 writers find a new primary, and what waiting for one costs
	MOORING_FAILOVER=1 $(GO) test -count=1 -v -run 'TestFailover|TestWaitingForAPrimary' ./core/client

.PHONY: rolling
rolling: ## replace three replicas, or kill one, while 200 clients read, and count what they see
	MOORING_ROLLING=1 $(GO) test -count=1 -timeout 20m -v -run TestRollingRestart ./cmd/gateway/internal/app
	cd lab && LAB_ROLLING=full $(GO) test -count=1 -timeout 20m -v ./rolling

.PHONY: scale
scale: ## measure the connections of 1, 3 and 8 replicas, and draw them into docs/scaling.md
	cd lab && LAB_SCALE=1 $(GO) test -count=1 -v -run TestMeasure ./scale
	cd lab && MOORING_REWRITE=1 $(GO) test -count=1 -run TestPage ./scale

.PHONY: fairness
fairness: ## measure what calls take beside another client's flood, with the fair queue and without
	MOORING_FAIRNESS=1 $(GO) test -count=1 -v -run TestFairness ./cmd/gateway/internal/app

.PHONY: wire-compare
wire-compare: ## compare what four drivers send for the same operations, on the server of test-server
ifdef MOORING_TEST_URI
	cd lab && MOORING_TEST_URI= $(GO) test -count=1 -v -run TestSameAttempts ./wire
	cd lab && $(GO) test -count=1 -v -run TestSameCommands ./wire
else
	$(ON_ENGINE)
endif

.PHONY: dredd
dredd: ## have npm's dredd call each operation of openapi.json with each of its failures (minutes)
	cd lab && LAB_DREDD=all $(GO) test -count=1 -timeout 30m -v ./dredd

.PHONY: filters
filters: ## compare filters with two other evaluators on 100,000 random pairs
	cd lab && LAB_FILTERS=100000 $(GO) test -count=1 -timeout 30m -v ./filters

.PHONY: changes
changes: ## 10000 changes to a browser and two clients, through 50 cuts and 5 restarts of replicas
	cd lab && LAB_CHANGES=full LAB_OFFLINE=1m $(GO) test -count=1 -timeout 30m -v ./changes

.PHONY: exactly-once
exactly-once: ## 100000 retryable writes through dropped connections, elections and overload
	cd lab && LAB_ONCE=$(ONCE) $(GO) test -count=1 -timeout 1h -v ./once

.PHONY: contract
contract: ## do what failed calls say, SEEDS=20 times (FIRST=1), while commands are lost and refused
	CONTRACT_SEEDS=$(SEEDS) CONTRACT_FIRST=$(FIRST) $(GO) test -count=1 -timeout 1h -v \
		-run TestContract ./internal/contract

.PHONY: contract-clients
contract-clients: ## the same with CALLS=500 operations of the TypeScript and the Python client each
	cd lab && LAB_CONTRACT=$(CALLS) $(GO) test -count=1 -timeout 1h -v ./contract

.PHONY: contract-control
contract-control: ## switch three of ten safeguards off, drawn by FIRST=1, at once and each alone: all must be found
	$(GO) run ./tools/contract -seed $(FIRST) -together
	$(GO) run ./tools/contract -seed $(FIRST)

.PHONY: bank
bank: ## BANK=5m of transfers and judged histories, while connections, primaries and replicas go
	cd lab && LAB_BANK=$(BANK) $(GO) test -count=1 -timeout 2h -v ./bank

.PHONY: bank-control
bank-control: ## take three safeguards out, one at a time, on scripts and on the engine: porcupine must find it
	cd lab && LAB_BANK=1m $(GO) test -count=1 -v -run TestControlOfTheJudge ./bank

.PHONY: drill
drill: ## twelve faults: metrics, log lines and alerts (on a real Prometheus) of each
	cd lab && $(GO) test -count=1 -v ./drill

.PHONY: metrics
metrics: ## SERIES=10m of random requests add no series, counters agree; the dashboard's queries have data
	cd lab && SERIES=$(SERIES) $(GO) test -count=1 -timeout 2h -v ./metrics

.PHONY: overload
overload: ## 200 callers on a server that admits 50 requests a second
	cd lab && $(GO) test -count=1 -v ./overload

.PHONY: pagers
pagers: ## PAGERS=10m of 100 clients that read large pages while replicas restart, for each of two budgets
	cd lab && LAB_PAGERS=$(PAGERS) $(GO) test -count=1 -timeout 2h -v ./pagers

.PHONY: starvation
starvation: ## measure what reads get beside cursors that hold all the connections they may
	cd lab && LAB_STARVATION=1 $(GO) test -count=1 -v -run TestStarvation ./e2e

.PHONY: watchers
watchers: ## measure what WATCHERS=1000 change streams cost the gateway
	cd lab && LAB_WATCHERS=$(WATCHERS) $(GO) test -count=1 -v -skip TestSubscribers ./watchers

.PHONY: subscribers
subscribers: ## measure SUBSCRIBERS=10000 Server-Sent Events of one collection
	cd lab && LAB_SUBSCRIBERS=$(SUBSCRIBERS) $(GO) test -count=1 -v -run TestSubscribers ./watchers
