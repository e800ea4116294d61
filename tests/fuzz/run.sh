#!/usr/bin/env bash
# Fuzz the trace reader, the tables and exports of traces, the digests of ranks, the databases, HLO and
# protobuf, with AddressSanitizer and UndefinedBehaviorSanitizer:
#
#   tests/fuzz/run.sh [seconds [target...]]      default: 20 seconds each of all tests/c/fuzz_*.c, as many at once as
#                                                there are processors
#
# Requires clang with libFuzzer: $CLANG, or clang on PATH. Objects, failing inputs and the grown corpora are written to
# $FUZZ_BUILD (default: build/fuzz). A failing input is stored there as <target>-crash-…: fix the bug, and add the input
# to tests/fuzz/corpus/<target>.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-20}
shift || true
targets=${*:-$(basename -a -s .c tests/c/fuzz_*.c | sed s/^fuzz_//)}
clang=${CLANG:-clang}
build=${FUZZ_BUILD:-build/fuzz}
command -v "$clang" >/dev/null || { echo "tests/fuzz/run.sh: clang not found; set CLANG to its path" >&2; exit 2; }

mapfile -t flags <compile_flags.txt
flags+=(-O1 -g -fno-omit-frame-pointer -Wno-format-zero-length
    -fsanitize=address,undefined,signed-integer-overflow -fno-sanitize-recover=all -Wno-unknown-pragmas -DFS_SMALL_BLOCKS -DFUZZING)
mkdir -p "$build"
# Recompile sources that are newer than their objects, and all of them after a change of a header or a flag.
newest_header=$(find csrc tests/c compile_flags.txt "$0" \( -name '*.txt' -o -name '*.h' -o -name '*.def' -o -name '*.inc' -o -name run.sh \) -printf '%T@ %p\n' |
    sort -n | tail -1 | cut -d' ' -f2-)
compile() {
    local object="$build/${1//\//_}.o"
    [ "$object" -nt "$1" ] && [ "$object" -nt "$newest_header" ] && return
    "$clang" "${flags[@]}" -fsanitize=fuzzer-no-link -c "$1" -o "$object"
}
# Run a function with each of the other arguments, as many at once as there are processors.
side_by_side() {
    local function=$1 argument failed=0 running=0
    shift
    for argument in "$@"; do
        if [ "$running" -ge "$(nproc)" ]; then
            wait -n || failed=1
            running=$((running - 1))
        fi
        "$function" "$argument" &
        running=$((running + 1))
    done
    for (( ; running > 0; running--)); do wait -n || failed=1; done
    return "$failed"
}

mapfile -t sources < <(python3 tests/helpers/core_build.py)
[ "${#sources[@]}" -gt 0 ]
echo "compiling ${#sources[@]} files of the core with $($clang --version | head -1)"
side_by_side compile "${sources[@]}"
objects=()
for source in "${sources[@]}"; do objects+=("$build/${source//\//_}.o"); done

# Traces are text, so only their targets benefit from longer inputs.
declare -A longest=([sqlite]=32768)
export ASAN_OPTIONS=quarantine_size_mb=16:malloc_context_size=8:allocator_may_return_null=1:detect_stack_use_after_return=0 UBSAN_OPTIONS=print_stacktrace=1
fuzz() {
    local target=$1 dictionary=() seeds
    "$clang" "${flags[@]}" -fsanitize=fuzzer "tests/c/fuzz_$target.c" "${objects[@]}" -lm -lpthread -ldl -o "$build/$target"
    mkdir -p "$build/corpus/$target"
    [ -f "tests/fuzz/$target.dict" ] && dictionary=("-dict=tests/fuzz/$target.dict")
    seeds=$(sed -nE '/^CORPORA/ { s/^CORPORA\((.*)\)$/\1/; s#"([^"]*)",?#tests/\1#gp }' "tests/c/fuzz_$target.c")
    # shellcheck disable=SC2086
    if ! "$build/$target" "$build/corpus/$target" $seeds "${dictionary[@]}" \
        -max_total_time="$seconds" -max_len="${longest[$target]:-8192}" -rss_limit_mb=4096 -timeout=60 \
        -print_final_stats=1 -artifact_prefix="$build/$target-" >"$build/$target.log" 2>&1; then
        grep -vE '^#' "$build/$target.log" | tail -60
        echo "tests/fuzz/run.sh: $target failed; see the input in $build/$target-… and the output in $build/$target.log" >&2
        return 1
    fi
    echo "+ $target: $seconds s"
    grep -E 'DONE|number_of_executed|average_exec' "$build/$target.log"
}

# shellcheck disable=SC2086
side_by_side fuzz $targets
