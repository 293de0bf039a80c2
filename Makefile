# Seekless: the two commands a newcomer needs are `make demo` and `make test`.
# Both get what they need by themselves: Rust by rustup where cargo is missing, nginx and the like unpacked from the
# distribution's packages into .cache/ (no service is started, nothing on the system is changed).

SHELL := /bin/bash
export PATH := $(HOME)/.cargo/bin:$(PATH)
PREFIX ?= /usr/local

.PHONY: help check demo dist dist-test dist-tools image containers-test systemd-test test test-kernels bench install install-lab uninstall build build-all setup libcs fmt clippy unit e2e docs examples

help:
	@echo 'make demo      the main job, end to end, on the built-in virtual disk (about 6 minutes after the build)'
	@echo 'make check     fmt, clippy, unit and property tests: a few minutes'
	@echo 'make test      everything: fmt, clippy, unit, property, golden, end to end, docs, examples'
	@echo 'make test-kernels Seekless on Debian'\''s kernels 5.10, 6.1 and 6.12, in virtual machines without acceleration (quarter of an hour)'
	@echo 'make bench     the live benchmarks of this machine, as ratios (about an hour)'
	@echo 'make dist      packages for Debian and others in target/dist/packages; make image: a container image'
	@echo 'make dist-test these packages installed, run, upgraded and removed in a root folder of Debian packages (root; skipped otherwise)'
	@echo 'make containers-test the image run as the manifests in deploy/ say, in namespaces of the test (root; a minute)'
	@echo 'make systemd-test its units under a systemd of their own, with nginx, clients and upgrades (the same; two minutes)'
	@echo 'make install   the program and the shim into PREFIX ($(PREFIX)); make install-lab: the laboratory'

demo: build-all
	@target/release/seekless-lab demo

setup:
	@scripts/rust
	@scripts/provision || echo 'going on without: the built-in server stands in, or an installed one'

# What only tests use: other C libraries, and an emulator.
libcs: setup
	@scripts/provision-libcs --quiet || echo 'going on without: the tests of these are skipped'

# What an operator installs.
build: setup
	@echo '== build (release)'
	cargo build --release --locked

# With the laboratory.
build-all: setup
	@echo '== build (release, with the laboratory)'
	cargo build --release --locked --workspace

# One process after the other: two cores, and the end-to-end tests measure exact counts, not time.
test: setup libcs fmt clippy unit docs examples
	@echo '== all of it passed; of the tests:'
	@awk '/^test result:/ { passed += $$4; failed += $$6 } END { print passed " passed, " failed " failed" }' target/test.log

fmt:
	@echo '== fmt'
	cargo fmt --all --check

clippy:
	@echo '== clippy'
	cargo clippy --workspace --all-targets --locked -- -D warnings

# What is worth waiting for before a commit; `make test` has the rest.
check: setup fmt clippy
	@echo '== tests (unit and property)'
	cargo test --workspace --lib --locked --quiet

# All targets at once: chosen by package, some dependencies have other features and are built twice.
unit:
	@echo '== tests (unit, property, golden, end to end)'
	cargo build --workspace --all-targets --locked
	set -o pipefail; cargo test --config "target.'cfg(unix)'.runner = '$(CURDIR)/scripts/contained'" \
	  --workspace --locked --no-fail-fast -- --show-output 2>&1 | tee target/test.log
	@scripts/skips target/test.log

docs:
	@echo '== docs'
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --workspace --no-deps --locked

examples:
	@echo '== examples'
	@scripts/run-examples

bench: build-all
	@scripts/bench

install: build
	install -D -m 755 target/release/seekless $(DESTDIR)$(PREFIX)/bin/seekless
	install -D -m 644 target/release/libseekless.so $(DESTDIR)$(PREFIX)/lib/seekless/libseekless.so
	install -D -m 644 target/release/libseekless_order.so $(DESTDIR)$(PREFIX)/lib/libseekless_order.so
	install -D -m 644 crates/order-c/include/seekless_order.h $(DESTDIR)$(PREFIX)/include/seekless_order.h
	@echo 'installed. Try: seekless doctor'

install-lab: build-all
	install -D -m 755 target/release/seekless-lab $(DESTDIR)$(PREFIX)/bin/seekless-lab

# Apart from `make test`: it fetches kernels and an emulator, and takes a processor for a quarter of an hour.
test-kernels: build
	@scripts/test-kernels

# What builds for an older C library and for the other architecture.
dist-tools: setup
	@scripts/provision-dist --quiet || echo 'going on without: the packages are for this machine alone'

dist: dist-tools
	@scripts/dist

image: dist
	@scripts/image

containers-test: image build-all libcs
	@scripts/provision --containers --quiet
	@scripts/containers-test

dist-test: dist
	@scripts/dist-test
	@scripts/dist-test --release bullseye
	@scripts/dist-twice

systemd-test: dist
	@scripts/systemd-test

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/seekless $(DESTDIR)$(PREFIX)/bin/seekless-lab $(DESTDIR)$(PREFIX)/lib/seekless/libseekless.so
	rm -f $(DESTDIR)$(PREFIX)/lib/libseekless_order.so $(DESTDIR)$(PREFIX)/include/seekless_order.h
	rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/lib/seekless 2>/dev/null || true
