#!/usr/bin/env bash
# Makes the Debian packages of the program that `make build` made: apus, and apus-dbgsym with its debug information.
#
# PROGRAM    the program (target/release/apus)
# OUT        folder for the packages (target/package); its contents are removed first
#
# debian/rules makes them in a copy of debian/, so that nothing is written next to the sources.
set -euo pipefail
cd "$(dirname "$0")/.."
program=$(realpath "${PROGRAM:-target/release/apus}")
out=${OUT:-target/package}

if [ ! -x "$program" ]; then
	echo "package: $program is missing; build it first: make build" >&2
	exit 3
fi
has=$("$program" --version | cut -d' ' -f2)
says=$(dpkg-parsechangelog -l debian/changelog -S Version)
if [ "$has" != "${says%-*}" ]; then
	echo "package: debian/changelog says $says, and the program is $has: write an entry for it" >&2
	exit 1
fi
rm -rf "$out"
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -a debian "$work/"
(cd "$work" && debian/rules binary SOURCE="$OLDPWD" OUT="$out" PROGRAM="$program" >"$out/log" 2>&1) || {
	tail -n 40 "$out/log" >&2
	exit 1
}
rm -f "$out/log"
ls -sh1 "$out"
