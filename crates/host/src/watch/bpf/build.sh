#!/bin/sh
# Rebuilds watch.bpf.o from watch.bpf.c and compares it with the committed one.
#   build.sh          exit 1 if the program differs from the committed object
#   build.sh --write  replaces the committed object
# Needs Debian's clang, llvm, libbpf-dev and linux-libc-dev. Only code, data and relocations are
# compared: another clang writes another version string and other debug information.
set -eu
cd "$(dirname "$0")"
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
clang -O2 -g -Wall -Wextra -Werror -target bpf -mcpu=v3 -ffile-prefix-map="$PWD"=. \
	-I"/usr/include/$(uname -m)-linux-gnu" -c watch.bpf.c -o "$new/watch.bpf.o"
llvm-strip -g "$new/watch.bpf.o" # drops DWARF, keeps BTF (which the maps and the offsets need)
if [ "${1:-}" = --write ]; then
	cp "$new/watch.bpf.o" watch.bpf.o
	exit 0
fi
for object in "$new/watch.bpf.o" watch.bpf.o; do
	llvm-objdump -d -r --no-show-raw-insn "$object" | tail -n +3
	llvm-objdump -s -j .rodata -j license "$object" | tail -n +3
done > "$new/both"
half=$(($(wc -l < "$new/both") / 2))
head -n "$half" "$new/both" > "$new/a"
tail -n "$half" "$new/both" > "$new/b"
if ! diff -u "$new/b" "$new/a"; then
	echo "watch.bpf.o is not what watch.bpf.c compiles to: run $0 --write and commit it" >&2
	exit 1
fi
