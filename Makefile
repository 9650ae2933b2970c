# Every target sets up what it needs: the Debian packages, a .venv with the pinned requirements, the build.
PYTHON ?= python3.11
VENV := .venv
PY := $(VENV)/bin/python
CMAKE := $(VENV)/bin/cmake
BUILD := build/release
JOBS ?= $(shell nproc)
PYTEST_ARGS ?=
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: all system venv deps build demo test test-core test-python cpython fuzz bench fmt lint lint-quick sanitize sanitize-threads clean
all: build

system:
	@sh tools/system_packages.sh

$(VENV)/.installed: requirements-dev.txt requirements-torch.txt | system
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-torch.txt
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@
venv deps: $(VENV)/.installed

$(BUILD)/build.ninja: $(VENV)/.installed
	$(CMAKE) -S . -B $(BUILD) -G Ninja -DPython3_EXECUTABLE=$(CURDIR)/$(PY) -DBRAZE_BUILD_TESTS=ON

# The extension is put beside the Python files, and the .venv is told where they are: python/ can be edited in place.
build: $(BUILD)/build.ninja
	$(CMAKE) --build $(BUILD) --target _C -j$(JOBS)
	@$(CMAKE) --install $(BUILD) --prefix python --component module
	@echo $(CURDIR)/python > $$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/braze-in-place.pth

demo: build
	$(PY) benchmarks/demo.py

test: lint-quick build test-core test-python
test-core: $(BUILD)/build.ninja
	$(CMAKE) --build $(BUILD) --target braze_tests -j$(JOBS)
	$(VENV)/bin/ctest --test-dir $(BUILD) --no-tests=error --output-on-failure -j$(JOBS)
test-python: build
	$(CMAKE) --build $(BUILD) --target braze_bridge_test -j$(JOBS)
	@# The two extensions register with the same dispatcher: one process each.
	BRAZE_BRIDGE_TEST=$(CURDIR)/$(BUILD)/braze_bridge_test.so $(PY) -m pytest $(PYTEST_ARGS) tests/bridge
	$(PY) -m pytest $(PYTEST_ARGS) --ignore=tests/bridge tests

# CPython's own test-suite in three modes, compared test by test with a plain run: CPYTHON_ARGS="--mode loop test_dict"
cpython: build
	$(PY) tests/cpython/run.py --jobs $(JOBS) --again $(CPYTHON_ARGS)

# Random programs, compiled and in eager: FUZZ_ARGS="--count 100000 --seed 7", or "--shrink SEED" for one that differs
fuzz: build
	$(PY) tests/fuzz --jobs $(JOBS) $(FUZZ_ARGS)

bench: build
	$(PY) benchmarks/run.py $(BENCH_ARGS)

fmt: $(VENV)/.installed
	$(PY) tools/lint.py --fix
lint-quick: $(VENV)/.installed
	$(PY) tools/lint.py --skip clang-tidy
lint: $(BUILD)/build.ninja
	$(PY) tools/lint.py --build $(BUILD)

sanitize: build
	$(CMAKE) -S . -B build/sanitize -G Ninja -DPython3_EXECUTABLE=$(CURDIR)/$(PY) -DBRAZE_BUILD_TESTS=ON \
	  -DBRAZE_BUILD_MODULE=OFF -DBRAZE_SANITIZE=address,undefined
	$(CMAKE) --build build/sanitize --target braze_tests -j$(JOBS)
	ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	  $(VENV)/bin/ctest --test-dir build/sanitize --no-tests=error --output-on-failure -j$(JOBS)
	$(PY) tools/leak_check.py

# The extension under ThreadSanitizer, in a Python that knows nothing of it (what the suppressions file excuses is torch's)
sanitize-threads: build
	$(CMAKE) -S . -B build/threads -G Ninja -DPython3_EXECUTABLE=$(CURDIR)/$(PY) -DBRAZE_SANITIZE=thread
	$(CMAKE) --build build/threads --target _C -j$(JOBS)
	rm -rf build/threads/python && cp -r python build/threads/python
	@$(CMAKE) --install build/threads --prefix build/threads/python --component module
	TSAN_OPTIONS=suppressions=$(CURDIR)/tests/threads.supp LD_PRELOAD=$$(c++ -print-file-name=libtsan.so) \
	  PYTHONPATH=$(CURDIR)/build/threads/python setarch -R $(PY) -m pytest -s tests/e2e/test_threads.py

clean:
	rm -rf build python/braze/_C.so
