# SPDX-License-Identifier: Apache-2.0
#
# A short front over CMake. On a new Debian or Ubuntu machine each goal installs what it needs and
# says so (tools/setup.sh). `make help` lists the goals.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
T ?= 60
GATE_TIME ?= 400
MAKEFLAGS += --no-print-directory
SETUP := tools/setup.sh
export TORCH_PACKAGES := torch apache-tvm-ffi numpy ml_dtypes pytest transformers jax jax-tvm-ffi
BUILD_NEEDS := compiler c++ cmake pkg-config python3

# $(call build,PRESET,FOLDER): configures once, then builds.
build = { test -f $(2)/Makefile || cmake --preset $(1); } && cmake --build $(2) --parallel $(JOBS)

.PHONY: all help python run test test-torch wheel docs gate check check-san check-full check-isa check-gpu bench bench-gpu fuzz tables \
	format format-check lint clang-build install clean

all: ## build the libraries and the tool in build/
	@$(SETUP) $(BUILD_NEEDS)
	@$(call build,default,build)

help: ## list the goals
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

python: # what the tests and the model need besides the build
	@$(SETUP) python

run: all python ## let a language model write an answer: MODEL=file.gguf PROMPT="..." DEVICE=cuda
	@tools/run_model.sh

test: all python ## run every test
	@tests/run.sh build $(CTEST)

test-torch: all python ## the Python tests on torch's tensors; installs torch (5 GB) into .venv-torch
	@tests/python/run.sh build .venv-torch $(TORCH_PACKAGES)

wheel: all python ## the Python package for others, into dist/, and a trial of it
	@tests/python/wheel.sh build

docs: all ## the reference of the Python package, into build/docs
	@tools/docs.sh build

tables: all ## bring the generated parts of the documents up to date
	@python3 tools/tables.py

format: ## lay out all sources
	@$(SETUP) format
	@tools/format.sh

format-check: ## say which sources are not laid out by the rules
	@$(SETUP) format
	@tools/format.sh --check

clang-build: ## build all with clang, warnings are errors
	@$(SETUP) $(BUILD_NEEDS) clang
	@$(call build,clang,build/clang)

gate: all ## compile the GPU kernels for every target, without a GPU
	@$(SETUP) python
	@tests/cuda/gate.sh build

check: format-check lint test gate ## before a commit: format, lint, tests with gcc and clang
	@$(MAKE) clang-build
	@tests/run.sh build/clang $(CTEST)

lint: all ## clang-tidy, and shellcheck where it is installed
	@$(SETUP) clang-tidy
	@tools/lint.sh

check-san: ## tests under the address, undefined and thread sanitizers
	@$(SETUP) $(BUILD_NEEDS) asan tsan
	@$(call build,asan,build/asan)
	@LSAN_OPTIONS=suppressions=$(CURDIR)/tools/lsan.txt:print_suppressions=0 TEST_TIMEOUT=3600 \
		tests/run.sh build/asan -LE repo $(CTEST)
	@$(call build,tsan,build/tsan)
	@TEST_TIMEOUT=3600 tools/tsan.sh tests/run.sh build/tsan -LE repo $(CTEST)

check-full: check ## check, every spec of the GPU kernels (GATE_TIME=400 GATE=...), aarch64 under qemu-user
	@tests/cuda/gate.sh build --full --time $(GATE_TIME) $(GATE)
	@$(SETUP) $(BUILD_NEEDS) aarch64
	@$(call build,aarch64,build/aarch64)
	@QEMU_LD_PREFIX=/usr/aarch64-linux-gnu OMP_WAIT_POLICY=passive \
		TEST_TIMEOUT=3600 tests/run.sh build/aarch64 -j $(JOBS) $(CTEST)
	@tests/python/wheel_aarch64.sh

bench: all ## time every problem on the CPU; PEERS=1 against torch as well
	@python3 bench/compare.py $(if $(PEERS),,--ours)

bench-gpu: all ## time every problem on the GPU; PEERS=1: and then beside the peers that Python has
	@python3 bench/compare.py --ours --backend cuda
	@$(if $(PEERS),python3 bench/peers_rows_cuda.py --keep bench/results)

fuzz: ## fuzz for T seconds in all; inputs are kept in .cache/fuzz
	@$(SETUP) $(BUILD_NEEDS) fuzzer
	@$(call build,fuzz,build/fuzz)
	@tests/fuzz/run.sh build/fuzz $(T)

check-gpu: all ## all that needs a GPU, in steps; run it again to go on (STEPS=operators TIME=600)
	@tools/check_gpu.sh

check-isa: test ## test and time every instruction set of this machine
	@build/bolide doctor
	@python3 bench/compare.py --ours --isa all

install: all ## install to PREFIX (/usr/local)
	@cmake --install build --prefix "$(PREFIX)"
	@tools/loader.sh "$(PREFIX)"

clean: ## remove the build folder
	@rm -rf build
