#!/usr/bin/env bash
# Comment the table on the pull request. One comment is edited from push to push. A token that may not comment, as that of a
# fork's pull request, is no failure: the summary of the job has the table too.
set -euo pipefail
[ -f flopscope-perf.md ] || { echo "there is no table: the tests did not run"; exit 0; }
gh pr comment "$NUMBER" --repo "$GITHUB_REPOSITORY" --body-file flopscope-perf.md --edit-last --create-if-none ||
    echo "::warning::the table could not be commented; it is in the summary of the job"
