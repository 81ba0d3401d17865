#!/usr/bin/env bash
# Runs every test of the workspace, all of them even where one fails, and lists at the end what was skipped and why.
#
#   tools/test.sh [CARGO TEST OPTIONS…]
#
# APUS_REQUIRE=all         a test that lacks something fails instead of being skipped (CI)
# APUS_FIRST_ATTEMPTS=FILE  appends to FILE how first attempts of tests that may retry ended (tools/attempts.sh)
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export APUS_SKIPS="$scratch/skips" APUS_FIRST_ATTEMPTS="${APUS_FIRST_ATTEMPTS:-$scratch/attempts}"

status=0
cargo test --workspace --no-fail-fast "$@" || status=$?

echo
if [ -s "$APUS_SKIPS" ]; then
	echo "$(sort -u "$APUS_SKIPS" | wc -l) skipped:"
	sort -u "$APUS_SKIPS" | sed 's/^SKIPPED /  /'
else
	echo "none skipped"
fi
[ ! -s "$APUS_FIRST_ATTEMPTS" ] || tools/attempts.sh "$APUS_FIRST_ATTEMPTS" || status=1
exit "$status"
