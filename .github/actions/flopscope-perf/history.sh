#!/usr/bin/env bash
# Download the stored runs of the last successful run of this workflow on the default branch into flopscope-perf/. Without
# any, such as in the first run, the folder stays empty, and nothing is compared.
set -euo pipefail
mkdir -p flopscope-perf
last=$(gh run list --repo "$GITHUB_REPOSITORY" --workflow "$GITHUB_WORKFLOW" --branch "$BRANCH" --status success --limit 1 \
    --json databaseId --jq '.[0].databaseId // empty')
if [ -z "$last" ]; then
    echo "no earlier run of this workflow on $BRANCH: nothing to compare with"
elif ! gh run download "$last" --repo "$GITHUB_REPOSITORY" --name "$NAME" --dir flopscope-perf; then
    echo "run $last has no artifact $NAME any more: nothing to compare with"
fi
