#!/usr/bin/env bash
# Judges retries. Some tests measure a machine that others use at the same time, and may retry without evidence of a
# disturbance.
#
#   tools/attempts.sh FILE    FILE was written by testkit::first_attempt in the last runs of `make test`
#
# Prints how many first attempts failed. Ends with 1 if there were at least ten, and more than one in ten failed. Then the
# retries hide a fault in the test or in Apus.
set -euo pipefail
[ $# = 1 ] || { sed -n 's/^# \{0,1\}//p' "$0" | sed 1d >&2; exit 2; }
[ -s "$1" ] || { echo "first attempts: none recorded"; exit 0; }
awk -F '\t' '
	{ all++; of[$1]++ }
	$2 == "failed" { failed++; failed_of[$1]++ }
	END {
		printf "first attempts: %d, failed: %d\n", all, failed
		for (test in failed_of) printf "  %s: %d of %d failed\n", test, failed_of[test], of[test]
		if (all >= 10 && failed * 10 > all) { print "more than one in ten: the retries hide a fault"; exit 1 }
	}' "$1"
