# make build      bin/haagent
# make test       all tests with the race detector, real brokers included
# make lint       everything that reads the code instead of running it
# make fuzz       each fuzz target for FUZZTIME
# make bench      all benchmarks, catch-up against a stock slave included
# make scale      gossip of 200 members in one process
# make e2e-all    the tests against every supported broker version
#
# Needed: Go 1.26, and for tests a JDK 17 and Maven, which fetches the brokers.

GO           ?= go
VERSION      ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME     ?= 20s
BENCHTIME    ?= 1s
# Packages tested side by side. Several of them start brokers, which are Java: more
# than a few at a time make each other miss their deadlines on small machines.
TESTJOBS     ?= 1
TESTFLAGS    ?= -timeout 30m
ALL_VERSIONS := 4.5.2,4.9.7,5.1.4,5.3.3,5.5.0

TOOLS         := $(CURDIR)/.cache/bin
LINTER        := $(TOOLS)/golangci-lint
LINTER_MODULE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
LINTER_VERSION := v2.15.0

.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
.PHONY: build test scale lint fuzz bench e2e-all brokers clean

build:
	CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/haagent ./cmd/haagent

test: brokers
	$(GO) test -race -p $(TESTJOBS) $(TESTFLAGS) ./...

# By itself and without the race detector, which leaves a small machine no time
# for so many members.
scale:
	$(GO) test -count=1 -v -run Scale -timeout 10m ./discovery

# All supported versions, one package after the other.
e2e-all:
	HAAGENT_BROKER_VERSIONS=$(ALL_VERSIONS) $(MAKE) test TESTJOBS=1 TESTFLAGS="-timeout 60m"

# The jars of the brokers under test, before any test's clock runs.
brokers:
	@for v in $$(echo "$${HAAGENT_BROKER_VERSIONS:-4.9.7,5.3.3}" | tr ',' ' '); do \
		BROKERTEST_FETCH=$$v $(GO) test -count=1 -run '^$$' ./agent/brokertest || exit 1; \
	done

lint: $(LINTER)-$(LINTER_VERSION)
	@unformatted=$$(gofmt -l agent cmd discovery wire); \
		if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(LINTER)-$(LINTER_VERSION) config verify
	$(LINTER)-$(LINTER_VERSION) run ./...
	$(GO) mod tidy -diff

$(LINTER)-$(LINTER_VERSION):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) $(GO) install $(LINTER_MODULE)@$(LINTER_VERSION)
	mv $(LINTER) $@

fuzz:
	@grep -rnE '^func Fuzz[A-Za-z0-9_]+\(' --include='*_test.go' agent cmd discovery wire | \
	sed -E 's|^(.*)/[^/]*:[0-9]+:func (Fuzz[A-Za-z0-9_]+)\(.*|\1 \2|' | sort | \
	while read -r dir target; do \
		echo "$$target in ./$$dir for $(FUZZTIME)"; \
		$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "./$$dir" < /dev/null || exit 1; \
	done

# The race against real brokers takes its own turns; the rest is timed.
bench:
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./agent/... ./wire/... ./discovery
	BROKERTEST_FETCH=4.9.7 $(GO) test -count=1 -run '^$$' ./agent/brokertest
	$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m ./cmd/haagent

clean:
	rm -rf bin dist
