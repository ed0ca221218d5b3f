# `make help` lists the targets. Go is all that must be there; tools are built into .cache/bin at the versions below.

GO             ?= go
BIN            := $(CURDIR)/bin
TOOLBIN        := $(CURDIR)/.cache/bin
GOLANGCI_LINT  := v2.15.0
GOFUMPT        := v0.12.0
NATSCLI        := v0.5.0

PKG            ?= ./...
TEST_TIMEOUT   ?= 10m
LAG            ?= 500ms
FUZZTIME       ?= 30s
DEMO_FLAGS     ?=
CHAOS          ?= -items 40 -events 10000 -workers 4 -kills 200 -duration 20m
RUN_FLAGS      ?= --generate-secret

export PATH    := $(TOOLBIN):$(BIN):$(PATH)
# A checkout of another owner (a container, CI) has no version control that go could ask.
export GOFLAGS := $(filter-out -buildvcs=%,$(GOFLAGS)) -buildvcs=false

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: need build $(TOOLBIN)/nats-$(NATSCLI) ## show the whole product on this machine, and leave nothing running
	@$(BIN)/loopfleet demo $(DEMO_FLAGS)

.PHONY: run
run: need build ## start everything in one process for real use (loopfleet up)
	@$(BIN)/loopfleet up $(RUN_FLAGS)

.PHONY: build
build: ## build the binaries into bin/
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/ ./cmd/...

.PHONY: check
check: lint test-race build ## what must be green before a change goes in

.PHONY: lint
lint: $(TOOLBIN)/golangci-lint-$(GOLANGCI_LINT) ## check style and format
	$< run --allow-parallel-runners --timeout 15m $(PKG)

.PHONY: fmt
fmt: $(TOOLBIN)/golangci-lint-$(GOLANGCI_LINT) ## format the code
	$< fmt

.PHONY: test
test: need ## run the tests (PKG=./pkg/queue/... for some)
	$(GO) test -shuffle=on -timeout $(TEST_TIMEOUT) $(PKG)

.PHONY: test-race
test-race: need ## run the tests with the race detector
	CGO_ENABLED=1 $(GO) test -race -shuffle=on -timeout $(TEST_TIMEOUT) $(PKG)

.PHONY: test-lag
test-lag: need ## run the tests with every write after a side effect delayed by LAG
	DISPATCH_LAG=$(LAG) $(GO) test -count=1 -shuffle=on -timeout $(TEST_TIMEOUT) $(PKG)

.PHONY: chaos
chaos: need ## kill processes under load and check what the agents got (CHAOS="-seed 7 -kills 50 ...")
	$(GO) test -count=1 -v -timeout 0 -run '^TestChaos$$' ./test/chaos $(CHAOS)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	@GO=$(GO) scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: need ## run the benchmarks
	$(GO) test -run '^$$' -bench . -benchmem -timeout $(TEST_TIMEOUT) $(PKG)

.PHONY: tools
tools: $(TOOLBIN)/golangci-lint-$(GOLANGCI_LINT) $(TOOLBIN)/gofumpt-$(GOFUMPT) $(TOOLBIN)/nats-$(NATSCLI) ## build the pinned tools

.PHONY: clean
clean: ## remove what make has built
	rm -rf $(BIN) .cache

# What the product itself runs on. Debian's packages are installed when they are missing.
.PHONY: need
need:
	@scripts/need tmux git

# A tool is kept under its name and version, so that a new version is built when this file changes.
tool = GOBIN=$(TOOLBIN) $(GO) install $(1) && cp $(TOOLBIN)/$(notdir $(firstword $(subst @, ,$(1)))) $@

$(TOOLBIN)/golangci-lint-$(GOLANGCI_LINT):
	$(call tool,github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT))

$(TOOLBIN)/gofumpt-$(GOFUMPT):
	$(call tool,mvdan.cc/gofumpt@$(GOFUMPT))

$(TOOLBIN)/nats-$(NATSCLI):
	$(call tool,github.com/nats-io/natscli/nats@$(NATSCLI))
