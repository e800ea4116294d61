#!/usr/bin/env bash
# Run the performance tests of $TESTS, store the run under flopscope-perf/, and write a table of the last two runs to
# flopscope-perf.md. The status is pytest's: 1 if a test fails, also if it takes more than $RATIO times as long as before.
set -euo pipefail
# Machines of different processors are not compared: each kind has a folder.
machine=$($PYTHON -c 'import flopscope as fs; print("_".join(device.name for device in fs.devices()))' | tr -c 'A-Za-z0-9_.\n' -)
storage="flopscope-perf/$machine"
runs() { find "$storage" -name '[0-9]*_*.json' 2>/dev/null | sort; }
compare=()
if [ -n "$(runs)" ]; then compare=(--perf-compare=last --perf-ratio="$RATIO"); fi
status=0
# shellcheck disable=SC2086
$PYTHON -m pytest $TESTS --perf-save --perf-storage="$storage" "${compare[@]}" || status=$?
runs | head -n -50 | xargs -r rm
if [ -z "$(runs)" ]; then exit "$status"; fi
{
    echo '### flopscope: performance'
    echo '```text'
    runs | tail -n 2 | xargs "$PYTHON" -m pytest_benchmark compare --group-by=fullname --sort=fullname \
        --columns=median,iqr,min,rounds
    echo '```'
} > flopscope-perf.md
tee -a "${GITHUB_STEP_SUMMARY:-/dev/null}" < flopscope-perf.md
exit "$status"
