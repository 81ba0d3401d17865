#!/usr/bin/env bash
# Runs every test of the workspace, even if one fails, and lists at the end which tests were skipped and why.
#
#   tools/test.sh [CARGO TEST OPTIONS…]
#
# APUS_REQUIRE=all         a test that lacks something fails instead of being skipped (CI)
# APUS_FIRST_ATTEMPTS=FILE  appends to FILE the results of the first attempts of tests that may retry (tools/attempts.sh)
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export APUS_SKIPS="$scratch/skips" APUS_FIRST_ATTEMPTS="${APUS_FIRST_ATTEMPTS:-$scratch/attempts}"

# What only computes runs beside what waits (labs, timers, other programs), in CPU time that nobody else wants.
computes='audit policy sim steer units'
# Of what mostly waits for programs that it started, more tests at a time than there are CPUs.
waits='cli'

# Seconds after which a test program is taken to hang. The longest takes about 300 on 2 CPUs.
longest=1200

descendants() {
	local pid
	for pid in $(pgrep -P "$1"); do echo "$pid" && descendants "$pid"; done
}

# Runs a test program. If it hangs, prints its process tree and kills its children, so that the test that waits for them
# fails; a minute later kills the program itself.
watched() {
	local program watch status=0
	"$@" </dev/null &
	program=$!
	(
		sleep "$longest" & trap "kill $!" TERM; wait "$!" || exit
		echo "HANGS for $longest s: $1"
		ps -o pid,ppid,etimes,stat,wchan:24,args --forest -p "$program" $(descendants "$program" | sed 's/^/-p/')
		pkill -KILL -P "$program"
		sleep 60
		kill -KILL "$program"
	) &
	watch=$!
	wait "$program" || status=$?
	kill "$watch" 2>/dev/null
	wait "$watch" 2>/dev/null
	return "$status"
}

# Runs the test programs in a list, each where its crate is, as cargo does.
programs() {
	local folder program threads failed=0
	while read -r folder program; do
		printf '\n     Running %s (%s)\n' "${program##*/}" "${folder##*/}"
		threads=()
		[ "${folder##*/}" != "$waits" ] || threads=("--test-threads=$(($(nproc) * 2))")
		(cd "$folder" && export CARGO_MANIFEST_DIR=$folder && watched "$program" "${threads[@]}") || { echo "FAILED: ${folder##*/} ${program##*/}"; failed=1; }
	done <"$1"
	return "$failed"
}

status=0
if [ $# -gt 0 ]; then
	cargo test --workspace --no-fail-fast "$@" || status=$?
else
	cargo test --workspace --no-run --message-format=json-render-diagnostics >"$scratch/built" || exit
	# A line for each artefact; a test program's profile ends in "test":true.
	sed -n '/"overflow_checks":[a-z]*,"test":true}/s/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"executable":"\([^"]*\)".*/\1 \2/p' \
		"$scratch/built" >"$scratch/all"
	[ -s "$scratch/all" ] || { echo "cargo names no test program" >&2; exit 1; }
	grep -E "/(${computes// /|}) " "$scratch/all" >"$scratch/computes"
	grep -vE "/(${computes// /|}) " "$scratch/all" >"$scratch/others"
	(renice -n 19 -p "$BASHPID" >/dev/null; programs "$scratch/computes") >"$scratch/beside" 2>&1 &
	beside=$!
	programs "$scratch/others" || status=1
	wait "$beside" || status=1
	cat "$scratch/beside"
	cargo test --workspace --no-fail-fast --doc || status=1
fi

echo
if [ -s "$APUS_SKIPS" ]; then
	echo "$(sort -u "$APUS_SKIPS" | wc -l) skipped:"
	sort -u "$APUS_SKIPS" | sed 's/^SKIPPED /  /'
else
	echo "none skipped"
fi
[ ! -s "$APUS_FIRST_ATTEMPTS" ] || tools/attempts.sh "$APUS_FIRST_ATTEMPTS" || status=1
exit "$status"
