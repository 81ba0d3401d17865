#!/usr/bin/env bash
# Gives libapus, as cargo built it (crates/capi), the names that C programs look for.
#
#   tools/libapus.sh TO [PREFIX]    writes TO/lib/libapus.so* and libapus.a, TO/include/apus.h, TO/lib/pkgconfig/apus.pc
#
# PREFIX   where TO will lie, for apus.pc (TO itself)
# BUILT    folder with libcapi.so and libcapi.a (target/release)
# LIBDIR   folder of the libraries below TO (lib)
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 1 ]; then
	echo "usage: $0 TO [PREFIX]" >&2
	exit 2
fi
mkdir -p "$1"
to=$(cd "$1" && pwd)
prefix=${2:-$to}
built=${BUILT:-target/release}
libdir=${LIBDIR:-lib}
if [ ! -f "$built/libcapi.so" ]; then
	echo "libapus: $built/libcapi.so is missing; build it first: make build" >&2
	exit 3
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
soname=$(sed -n 's/.*-soname,\([^"]*\)".*/\1/p' crates/capi/build.rs)
full=libapus.so.$version
install -D -m 644 "$built/libcapi.so" "$to/$libdir/$full"
ln -sfn "$full" "$to/$libdir/$soname"
ln -sfn "$soname" "$to/$libdir/libapus.so"
install -D -m 644 "$built/libcapi.a" "$to/$libdir/libapus.a"
strip --strip-unneeded "$to/$libdir/$full"
strip --strip-debug "$to/$libdir/libapus.a"
install -D -m 644 crates/capi/include/apus.h "$to/include/apus.h"
mkdir -p "$to/$libdir/pkgconfig"
sed -e "s|@prefix@|$prefix|; s|@libdir@|$libdir|; s|@version@|$version|" crates/capi/apus.pc.in >"$to/$libdir/pkgconfig/apus.pc"
