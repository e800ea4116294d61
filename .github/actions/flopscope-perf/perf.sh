#!/usr/bin/env bash
# Measure $COMMAND on the merge base with $BRANCH, or on $BASE, and on the checkout, and write a table to flopscope-perf.md.
# The status is that of `flopscope ab`: 1 if a test is slower by more than $FAIL_OVER.
set -euo pipefail
base=${BASE:-$(git merge-base HEAD "$BRANCH" | xargs git rev-parse --short)} || { echo "::error::no merge base: check out with fetch-depth: 0"; exit 2; }
read -ra command <<<"$COMMAND"
status=0
"$PYTHON" -m flopscope ab "$base" HEAD --max-time "${MAX_TIME:-300}" --setup "${SETUP:-}" ${FAIL_OVER:+--fail-over "$FAIL_OVER"} \
    --markdown flopscope-perf.md -- "${command[@]}" || status=$?
if [ -f flopscope-perf.md ]; then cat flopscope-perf.md >>"${GITHUB_STEP_SUMMARY:-/dev/null}"; fi
exit "$status"
