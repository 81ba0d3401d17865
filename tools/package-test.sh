#!/usr/bin/env bash
# Installs the Debian package in a fresh root file system of Debian 12, tries its files, removes it, and looks for files that
# are left. Then it does the same with `make install` in an empty folder. It needs root. The root file system is made of
# packages from a mirror, and the programs in it have no network.
#
# PACKAGES   folder with the packages (target/package)
# PROGRAM    the program (target/release/apus)
# MIRROR     mirror of Debian (http://deb.debian.org/debian)
set -euo pipefail
cd "$(dirname "$0")/.."
packages=$(realpath "${PACKAGES:-target/package}")
export PROGRAM=${PROGRAM:-target/release/apus}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

fail() {
	echo "package-test: $*" >&2
	exit 1
}

# In the root, without a network; /proc is that of its processes.
inside() {
	unshare --mount --net --pid --ipc --fork --propagation private sh -c '
		mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && exec chroot "$0" "$@"' "$root" "$@"
}

# Each file, folder and link with its kind, mode, owner, target and contents; not what dpkg and man-db note of their own work,
# nor /run, which a boot empties.
state() {
	(
		cd "$1"
		find . \( -path ./proc -o -path ./run -o -path ./sys \) -prune -o -printf '%y %m %u %g %p %l\n'
		find . \( -path ./proc -o -path ./run -o -path ./sys \) -prune -o -type f -print0 | xargs -0r sha256sum
	) | grep -vE '(\./var/lib/dpkg/status(-old)?|\./var/log/dpkg\.log|\./var/cache/man/.*) ?$' | sort
}

same() {
	diff "$work/before" "$work/after" >"$work/left" || {
		cat "$work/left" >&2
		fail "$1 leaves a trace: < before, > after"
	}
}

# man-db reads manual pages, which mmdebstrap, like docker, may be set to leave out.
mmdebstrap --quiet --mode=root --variant=essential --include=bash-completion,man-db,systemd \
	--dpkgopt='path-include=/usr/share/man/*' bookworm "$root" "${MIRROR:-http://deb.debian.org/debian}"
state "$root" >"$work/before"
cp "$packages"/apus_*.deb "$packages"/apus-dbgsym_*.deb "$work/"
mkdir "$work/debs" && mv "$work"/*.deb "$work/debs/"

install_package() {
	mkdir "$root/debs"
	cp "$work"/debs/*.deb "$root/debs/"
	inside sh -c 'dpkg --install /debs/*.deb' >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "it does not install"; }
	rm -r "$root/debs"
}
install_package

# The program, and that its debug information is the one of the other package.
inside apus --version
[ "$(inside apus --help | grep -c ':$')" -ge 6 ] || fail "apus --help has no groups"
inside sh -c 'apus audit --json >/dev/null; [ $? -le 1 ]' || fail "apus audit does not run"
id=$(LC_ALL=C readelf -n "$root/usr/bin/apus" | sed -n 's/^ *Build ID: //p')
[ -f "$root/usr/lib/debug/.build-id/${id::2}/${id:2}.debug" ] || fail "no debug information for build id $id"
[ "$(stat -c %s "$root/usr/bin/apus")" -le 25000000 ] || fail "the program has more than 25 MB"
[ -z "$(LC_ALL=C readelf -S "$root/usr/bin/apus" | grep '\.debug_info')" ] || fail "the program is not stripped"

# Manual pages: one for each command that the help shows, none with a complaint of the formatter's.
for command in $(inside apus --help | sed -n 's/^  \([a-z]\+\)  .*/\1/p' | grep -v '^apus$'); do
	inside env MANWIDTH=80 MANROFFSEQ= man --warnings=w -P cat "apus-$command" >"$work/page" 2>"$work/complaints" ||
		fail "man apus-$command: $(cat "$work/complaints")"
	[ ! -s "$work/complaints" ] || fail "man apus-$command: $(cat "$work/complaints")"
	grep -q "^NAME" "$work/page" || fail "man apus-$command shows nothing"
done
inside env MANWIDTH=80 man -P cat apus | grep 'apus-tune(1)' >/dev/null || fail "man apus does not name apus-tune(1)"
inside man -w apus-tune-apply >/dev/null || fail "no manual page of apus tune apply"

# Completions, as bash-completion loads and calls them at a tab.
complete() {
	inside bash -c '
		. /usr/share/bash-completion/bash_completion
		_completion_loader apus
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
		COMPREPLY=()
		_apus apus "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
		printf "%s " "${COMPREPLY[@]}"' bash "$@"
}
inside bash -n /usr/share/bash-completion/completions/apus
[ "$(complete apus au)" = "audit " ] || fail "apus au<TAB> completes $(complete apus au)"
[ "$(complete apus tune app)" = "apply " ] || fail "apus tune app<TAB> completes $(complete apus tune app)"
complete apus bench latency --go | grep -- '--goal' >/dev/null || fail "apus bench latency --go<TAB> does not complete --goal"

# Units; the manual pages that they name are looked for too.
cp "$root"/lib/systemd/system/apus-*@.service "$work/"
inside systemd-analyze verify /lib/systemd/system/apus-metrics.service /lib/systemd/system/apus-moderate.service /lib/systemd/system/apus-power-watch.service /lib/systemd/system/apus-serve.service \
	/lib/systemd/system/apus-tune.target apus-run@edge.service apus-tune@poll.service >"$work/units" 2>&1 || { cat "$work/units" >&2; fail "units are wrong"; }
[ ! -s "$work/units" ] || { cat "$work/units" >&2; fail "systemd complains of the units"; }

# What an administrator has done since goes too: a profile at boot, a journal, instances of units.
inside apus tune enable powersave >/dev/null || fail "apus tune enable does not work"
[ -f "$root/etc/systemd/system/apus-tune.service" ] || fail "apus tune enable wrote no unit"
inside systemctl --quiet enable apus-metrics.service apus-moderate.service apus-power-watch.service apus-serve.service apus-tune@poll.service \
	apus-run@edge.service >"$work/log" 2>&1 ||
	fail "systemctl enable: $(cat "$work/log")"
mkdir -p "$root/var/lib/apus/tune"
inside dpkg --purge apus-dbgsym apus >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "it cannot be removed"; }
state "$root" >"$work/after"
same "dpkg --purge"

# make install, below a folder that has files of others.
mkdir -p "$work/local/usr/local/bin" "$work/local/usr/local/share/man/man1"
echo other >"$work/local/usr/local/bin/other"
chmod 2775 "$work/local/usr/local/bin"
state "$work/local" >"$work/before"
DESTDIR="$work/local" tools/install.sh install >/dev/null
"$work/local/usr/local/bin/apus" --version >/dev/null
[ -f "$work/local/usr/local/share/man/man1/apus-run.1" ] || fail "make install installs no manual page of apus run"
# A file of an earlier version goes with the next installation.
mkdir "$work/local/usr/local/share/apus/old"
touch "$work/local/usr/local/share/apus/old/file"
printf '%s\n' /usr/local/share/apus/old/ /usr/local/share/apus/old/file >>"$work/local/usr/local/share/apus/installed"
DESTDIR="$work/local" tools/install.sh install >/dev/null
[ ! -e "$work/local/usr/local/share/apus/old" ] || fail "make install leaves what an earlier version had"
DESTDIR="$work/local" tools/install.sh uninstall >/dev/null
state "$work/local" >"$work/after"
same "make uninstall"
echo "the package and make install install, work, and leave nothing behind"
