#!/usr/bin/env bash
# Builds libapus-dpdk (crates/capi/dpdk) with the C compiler, against the libdpdk that pkg-config finds.
#
#   tools/libapus-dpdk.sh TO [PREFIX]    writes TO/lib/libapus-dpdk.so* and libapus-dpdk.a, TO/include/apus_dpdk.h,
#                                        TO/lib/pkgconfig/apus-dpdk.pc, beside libapus (tools/libapus.sh TO)
#
# PREFIX   where TO will lie, for apus-dpdk.pc (TO itself)
# LIBDIR   folder of the libraries below TO (lib)
# CC, CFLAGS
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 1 ]; then
	echo "usage: $0 TO [PREFIX]" >&2
	exit 2
fi
to=$(cd "$1" && pwd)
prefix=${2:-$to}
libdir=${LIBDIR:-lib}
if ! pkg-config --atleast-version=22.11 libdpdk; then
	echo "libapus-dpdk: libdpdk 22.11 or later is needed, with its headers: install libdpdk-dev and pkg-config" >&2
	exit 3
fi
if [ ! -e "$to/$libdir/libapus.so" ]; then
	echo "libapus-dpdk: $to/$libdir/libapus.so is missing; build it first: make lib" >&2
	exit 3
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
soname=libapus-dpdk.so.0
full=libapus-dpdk.so.$version
source=crates/capi/dpdk
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
for file in apus_dpdk lcore frequency; do
	# shellcheck disable=SC2046,SC2086 # words
	"${CC:-cc}" -std=gnu11 -O2 -g -fPIC -fvisibility=hidden -Wall -Wextra ${CFLAGS:-} -DALLOW_EXPERIMENTAL_API \
		$(pkg-config --cflags libdpdk) -I"$to/include" -c "$source/$file.c" -o "$objects/$file.o"
done
mkdir -p "$to/$libdir/pkgconfig" "$to/include"
# shellcheck disable=SC2046,SC2086
"${CC:-cc}" -shared ${CFLAGS:-} -Wl,-soname,"$soname" -Wl,-z,defs "$objects"/*.o -o "$to/$libdir/$full" -L"$to/$libdir" -lapus \
	$(pkg-config --libs libdpdk)
ln -sfn "$full" "$to/$libdir/$soname"
ln -sfn "$soname" "$to/$libdir/libapus-dpdk.so"
rm -f "$to/$libdir/libapus-dpdk.a"
# One object, so that only the functions of the header are visible.
ld -r "$objects"/*.o -o "$objects/all"
objcopy --localize-hidden "$objects/all"
ar rcs "$to/$libdir/libapus-dpdk.a" "$objects/all"
install -m 644 "$source/apus_dpdk.h" "$to/include/apus_dpdk.h"
sed -e "s|@prefix@|$prefix|; s|@libdir@|$libdir|; s|@version@|$version|" "$source/apus-dpdk.pc.in" >"$to/$libdir/pkgconfig/apus-dpdk.pc"
