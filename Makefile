# make build      bin/haagent
# make test       all tests with the race detector, real brokers included
# make lint       everything that reads the code instead of running it
# make generate   manual, completions, example file and reference, from the options
# make fuzz       each fuzz target for FUZZTIME, in inputs (20000x) or in time (5m)
# make promcheck  alert rules and metrics, read by promtool
# make bench      all benchmarks, catch-up against a stock slave included
# make scale      gossip of 200 members in one process
# make e2e-all    the tests against every supported broker version
# make packages   .deb and .rpm for amd64 and arm64, in dist/
# make packages-check  builds them, and installs, upgrades, removes and purges them
#
# Needed: Go 1.26, and for tests a JDK 17 and Maven, which fetches the brokers.

GO           ?= go
VERSION      ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME     ?= 20000x
BENCHTIME    ?= 1s
PROMTOOL     ?= promtool
# Packages tested side by side. Several of them start brokers, which are Java: more
# than a few at a time make each other miss their deadlines on small machines.
TESTJOBS     ?= 1
TESTFLAGS    ?= -timeout 30m
ALL_VERSIONS := 4.5.2,4.9.7,5.1.4,5.3.3,5.5.0

TOOLS         := $(CURDIR)/.cache/bin
LINTER        := $(TOOLS)/golangci-lint
LINTER_MODULE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
LINTER_VERSION := v2.15.0

PACKER         := $(TOOLS)/nfpm
PACKER_MODULE  := github.com/goreleaser/nfpm/v2/cmd/nfpm
PACKER_VERSION := v2.45.2
DIST           ?= dist
ARCHES         ?= amd64 arm64
FORMATS        ?= deb rpm

.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
.PHONY: generate build test scale lint fuzz bench e2e-all brokers packages packages-check clean

build:
	CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/haagent ./cmd/haagent

# What is made from the table of options and kept beside the sources.
generate:
	$(GO) run ./cmd/haagent generate .

test: brokers $(PACKER)-$(PACKER_VERSION)
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

# Alert rules and metrics as Prometheus reads them; promtool comes with its package.
promcheck:
	$(PROMTOOL) check rules packaging/prometheus/haagent.rules.yml
	for f in agent/control/testdata/metrics-*.txt; do $(PROMTOOL) check metrics < $$f || exit 1; done

# A count of inputs by default: when a time is up, go test at times reports the
# deadline itself as a failure of the target.
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

packages: $(PACKER)-$(PACKER_VERSION)
	GO="$(GO)" NFPM=$< VERSION="$(VERSION)" DIST="$(DIST)" ARCHES="$(ARCHES)" FORMATS="$(FORMATS)" packaging/build

# Installs what it needs, and leaves the system's own files alone.
packages-check: $(PACKER)-$(PACKER_VERSION)
	GO="$(GO)" NFPM=$< .ci/packages

$(PACKER)-$(PACKER_VERSION):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) $(GO) install $(PACKER_MODULE)@$(PACKER_VERSION)
	mv $(PACKER) $@

clean:
	rm -rf bin dist
