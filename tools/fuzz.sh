#!/usr/bin/env bash
# Runs every target of fuzz/ with inputs of libFuzzer, or only the targets named as arguments.
#
# FUZZ_SECONDS   seconds for each target (20)
# FUZZ_JOBS      number of targets that run at the same time (one per CPU)
# FUZZ_SEED      gives the same inputs again (0: other inputs each time)
#
# The script ends with an error at the first input that panics, hangs or takes more than 1 GB, and keeps that input in
# fuzz/artifacts. Stable Rust is enough, because the script gives the compiler the options that cargo-fuzz would give it. With
# these, libFuzzer finds inputs that reach new code, and keeps them in fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

# Journals are synced at each step. They are kept in memory, where that takes no time.
[ ! -d /dev/shm ] || [ ! -w /dev/shm ] || export memory=/dev/shm
export seconds=${FUZZ_SECONDS:-20} seed=${FUZZ_SEED:-0} binaries
jobs=${FUZZ_JOBS:-$(nproc)}
host=$(rustc -vV | sed -n 's/^host: //p')
out=target/fuzz
# SanitizerCoverage as libFuzzer needs it (LLVM, SanitizerCoverage.html); with the checks of a debug build.
flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
	-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on -Coverflow-checks=on"
# With --target the flags are not for build scripts.
RUSTFLAGS=$(tr -s '\n\t ' ' ' <<<"$flags") \
	cargo build --release --bins --manifest-path fuzz/Cargo.toml --target-dir "$out" --target "$host"

# Archives to begin with: the fuzzer does not find checksums by itself.
mkdir -p fuzz/corpus/host_archive
tar -C fuzz/seeds/tree -cf fuzz/corpus/host_archive/seed.tar proc sys
gzip -nkf fuzz/corpus/host_archive/seed.tar

[ $# -gt 0 ] || set -- $(sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | grep -v '^apus-fuzz$')
binaries=$out/$host/release
feed() {
	local target=$1 log seeds=()
	mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
	[ -d "fuzz/seeds/$target" ] && seeds=("fuzz/seeds/$target")
	log=$(mktemp)
	if ! TMPDIR=${memory:-${TMPDIR:-/tmp}} "$binaries/$target" -max_total_time="$seconds" -seed="$seed" -rss_limit_mb=1024 -timeout=10 -max_len=65536 \
		-close_fd_mask=1 -artifact_prefix="fuzz/artifacts/$target/" "fuzz/corpus/$target" "${seeds[@]}" >"$log" 2>&1; then
		tail -n 60 "$log" >&2
		echo "$target: failed; the input is in fuzz/artifacts/$target" >&2
		return 255 # xargs starts no other then
	fi
	printf '%s: %s\n' "$target" "$(grep -E '^Done' "$log" || tail -n 1 "$log")"
	rm -f "$log"
}
export -f feed
printf '%s\n' "$@" | xargs -P "$jobs" -I TARGET bash -c 'feed TARGET'
