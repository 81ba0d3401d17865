#!/usr/bin/env bash
# Installs what Apus needs and this machine lacks. If nothing is missing, it ends quickly and prints nothing.
#
#   tools/setup.sh run      what is needed to build, and to run the demo
#   tools/setup.sh test     ... and the tests, with real clients and Prometheus
#   tools/setup.sh vm       ... and the VM lab: QEMU. The lab fetches the guest's packages itself, and does not install them
#   tools/setup.sh fuzz     ... and the fuzz targets
#   tools/setup.sh package  ... and to make the Debian packages
#   tools/setup.sh bench    ... and the comparisons with DPDK, and of unmodified servers
#   tools/setup.sh dpdk     what is needed to build, with DPDK's libraries
#   tools/setup.sh ci       ... and all of the above, with the tools that rebuild the XDP program and the fuzz targets
#
# On Debian and Ubuntu, the script installs with apt-get as root. On other systems it prints what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

# program:package, in the order in which they are first needed
run=(cc:gcc /usr/include/stdlib.h:libc6-dev ip:iproute2 ethtool:ethtool nsenter:util-linux sysctl:procps)
test=("${run[@]}" ping:iputils-ping iperf3:iperf3 sockperf:sockperf prometheus:prometheus stress-ng:stress-ng
	cpio:cpio xz:xz-utils
	# libapus: the header's compilers, the checkers, and the examples.
	g++:g++ clang:clang valgrind:valgrind nm:binutils pkg-config:pkg-config python3:python3
	/usr/include/xdp/xsk.h:libxdp-dev /usr/include/linux/bpf.h:linux-libc-dev)
bench=("${run[@]}" python3:python3 cyclictest:rt-tests dpdk-testpmd:dpdk-dev clang:clang llvm-strip:llvm
	/usr/include/bpf/bpf_helpers.h:libbpf-dev /usr/include/linux/bpf.h:linux-libc-dev)
# benches/moderate.py. Not with `ci`: redis and memcached start services where systemd runs.
servers=(sockperf:sockperf iperf3:iperf3 redis-benchmark:redis-tools redis-server:redis-server memcached:memcached
	memcslap:libmemcached-tools)
dpdk=("${run[@]}" pkg-config:pkg-config python3:python3 /usr/include/dpdk/rte_ethdev.h:libdpdk-dev)
vm=("${run[@]}" qemu-system-x86_64:qemu-system-x86 setpriv:util-linux strip:binutils xz:xz-utils)
fuzz=("${run[@]}" g++:g++)
package=("${run[@]}" dh:debhelper dpkg-shlibdeps:dpkg-dev objcopy:binutils)
# The engines that `apus tune export` writes for. Not with `test`: tuned's package starts it where systemd runs.
engines=(systemd-analyze:systemd tuned:tuned /usr/bin/python3:python3-venv)
# What installs the package in a root of its own (tools/package-test.sh).
roots=(mmdebstrap:mmdebstrap)
ci=("${test[@]}" "${bench[@]}" "${dpdk[@]}" "${vm[@]}" "${fuzz[@]}" "${engines[@]}" "${package[@]}" "${roots[@]}")

case "${1:-run}" in
run) wanted=("${run[@]}") ;;
test) wanted=("${test[@]}") ;;
vm) wanted=("${vm[@]}") ;;
fuzz) wanted=("${fuzz[@]}") ;;
bench) wanted=("${bench[@]}" "${servers[@]}") ;;
dpdk) wanted=("${dpdk[@]}") ;;
package) wanted=("${package[@]}") ;;
ci) wanted=("${ci[@]}") ;;
*)
	echo "usage: $0 [run|test|vm|fuzz|bench|dpdk|package|ci]" >&2
	exit 2
	;;
esac

export PATH="$PATH:/usr/sbin:/sbin:$HOME/.cargo/bin"
missing=()
for pair in "${wanted[@]}"; do
	case "${pair%%:*}" in
	/*) [ -e "${pair%%:*}" ] || missing+=("${pair#*:}") ;;
	*) command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}") ;;
	esac
done
if [ "${#missing[@]}" -gt 0 ]; then
	mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		echo "setup: installing ${missing[*]}" >&2
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq </dev/null
		apt-get install -qq -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null
	else
		echo "setup: missing: ${missing[*]} (the names of Debian's packages)" >&2
		if command -v apt-get >/dev/null; then
			echo "setup: install them: sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
		else
			echo "setup: install what your distribution calls these, and run this again" >&2
		fi
		exit 3
	fi
fi

# Ansible from PyPI, in a folder of its own, where the tests of exports look for it.
ansible="$HOME/.cache/apus/ansible"
if [ "${1:-run}" = ci ] && ! command -v ansible-playbook >/dev/null && [ ! -x "$ansible/bin/ansible-playbook" ]; then
	echo "setup: installing ansible-core into $ansible" >&2
	if ! /usr/bin/python3 -c 'import ensurepip' 2>/dev/null; then
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv </dev/null >/dev/null
	fi
	/usr/bin/python3 -m venv "$ansible"
	"$ansible/bin/pip" install -q 'ansible-core>=2.17,<2.20'
fi

# The MLRsearch controller of RFC 9971's authors from PyPI, in a folder of its own, where the test that compares looks.
mlrsearch="$HOME/.cache/apus/mlrsearch"
if [ "${1:-run}" = ci ] && [ ! -x "$mlrsearch/bin/python3" ]; then
	echo "setup: installing MLRsearch into $mlrsearch" >&2
	if ! /usr/bin/python3 -c 'import ensurepip' 2>/dev/null; then
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv </dev/null >/dev/null
	fi
	/usr/bin/python3 -m venv "$mlrsearch"
	"$mlrsearch/bin/pip" install -q 'MLRsearch==1.2.1'
fi

# rust-version in Cargo.toml, which Debian's cargo is older than.
needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
if ! command -v cargo >/dev/null; then
	echo "setup: cargo is missing. Apus needs Rust $needed or later, newer than Debian's package;" >&2
	echo "setup: install it with rustup, as https://rustup.rs says, and run this again" >&2
	exit 3
fi
has=$(cargo --version | cut -d' ' -f2)
if [ "$(printf '%s\n%s\n' "$needed" "${has%%-*}" | sort -V | head -n 1)" != "$needed" ]; then
	echo "setup: cargo is $has; Apus needs $needed or later: rustup update stable" >&2
	exit 3
fi
