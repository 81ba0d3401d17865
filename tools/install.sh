#!/usr/bin/env bash
# Installs the program that `make build` made, with its other files, or removes what an earlier run installed.
#
#   tools/install.sh install      the program, completions, manual pages, units, profiles, machines, scenarios, licences, libapus
#   tools/install.sh uninstall    removes the files and folders that it created, and nothing else
#
# PREFIX     folder to install to (/usr/local)
# DESTDIR    a folder that takes the place of /, for packages (none)
# PROGRAM    the program (target/release/apus); it generates its own completions and manual pages
# STRIP      command that strips the program (strip -s); `true` for a package that separates the debug information itself
# LIBRARY    no: without libapus, which is libcapi.* in the program's folder (yes)
# ZSH        folder of zsh's completions below PREFIX (share/zsh/site-functions)
# MANIFEST   file below PREFIX that lists what was created (share/apus/installed); if empty, there is no list
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
program=${PROGRAM:-target/release/apus}
read -r -a strip <<<"${STRIP:-strip -s}"
library=${LIBRARY:-yes}
zsh=${ZSH:-share/zsh/site-functions}
manifest=${MANIFEST-share/apus/installed}

case $prefix in
/*) prefix=${prefix%/} ;;
*)
	echo "install: PREFIX=$prefix: name a folder by its whole path, such as /usr/local" >&2
	exit 2
	;;
esac

# Everything as it will lie below PREFIX.
stage() {
	local to=$1 unit shell name
	install -D -m 755 "$program" "$to/bin/apus"
	"${strip[@]}" "$to/bin/apus"
	for shell in "bash share/bash-completion/completions/apus" "zsh $zsh/_apus" "fish share/fish/vendor_completions.d/apus.fish"; do
		read -r shell name <<<"$shell"
		mkdir -p "$to/$(dirname "$name")"
		"$program" generate completions "$shell" >"$to/$name"
	done
	"$program" generate man "$to/share/man/man1"
	mkdir -p "$to/lib/systemd/system"
	for unit in systemd/*; do
		name=$(basename "$unit" .in)
		sed "s|@bindir@|$prefix/bin|" "$unit" >"$to/lib/systemd/system/$name"
	done
	install -D -m 644 -t "$to/share/apus/profiles" profiles/*.toml
	install -D -m 644 -t "$to/share/apus/machines" machines/*.toml
	install -D -m 644 -t "$to/share/apus/scenarios" scenarios/*.toml
	[ "$library" = no ] || BUILT=$(dirname "$program") tools/libapus.sh "$to" "$prefix"
	install -D -m 644 -t "$to/share/doc/apus" LICENSE-APACHE LICENSE-MIT README.md CHANGELOG.md
}

# Removes what the manifest in $1 names, but for what $2, a list of the same form, names too. Folders go if they are empty.
remove() {
	local name
	# Backwards: what is in a folder goes before it.
	comm -23 <(sort "$1") <(sort "$2") | sort -r | while read -r name; do
		case $name in
		*/) [ ! -d "$root$name" ] || rmdir --ignore-fail-on-non-empty "$root$name" ;;
		*) rm -f "$root$name" ;;
		esac
	done
}

# The folders of the files on standard input, and those above them, a line each.
folders() {
	local name
	while read -r name; do
		while name=${name%/*} && [ -n "$name" ]; do echo "$name/"; done
	done | sort -u
}

install_all() {
	if [ ! -x "$program" ]; then
		echo "install: $program is missing; build it first: make build" >&2
		exit 3
	fi
	umask 022
	staged=$(mktemp -d)
	trap 'rm -rf "$staged"' EXIT
	stage "$staged/files"
	local before=$root$prefix/$manifest name mode
	(cd "$staged/files" && find . ! -type d -printf "$prefix/%P\n") >"$staged/list"
	[ -z "$manifest" ] || echo "$prefix/$manifest" >>"$staged/list"
	# Ours are the folders that are not there yet, and of an earlier installation's those that still hold something.
	folders <"$staged/list" >"$staged/folders"
	touch "$staged/earlier"
	if [ -n "$manifest" ] && [ -f "$before" ]; then
		sort -u "$before" >"$staged/earlier"
	fi
	comm -12 "$staged/folders" "$staged/earlier" >>"$staged/list"
	while read -r name; do
		[ -d "$root$name" ] || echo "$name"
	done <"$staged/folders" >>"$staged/list"
	remove "$staged/earlier" "$staged/list"
	# File by file: folders that are there already keep their owner and mode, and a running program its file.
	(cd "$staged/files" && find . -type f -printf '%m %P\n') | while read -r mode name; do
		install -D -m "$mode" "$staged/files/$name" "$root$prefix/$name"
	done
	(cd "$staged/files" && find . -type l -printf '%P\n') | while read -r name; do
		cp -dfT "$staged/files/$name" "$root$prefix/$name"
	done
	if [ -n "$manifest" ]; then
		sort -u "$staged/list" >"$before"
	fi
	echo "installed $(grep -vc '/$' "$staged/list") files below $root$prefix"
	if [ -z "$root" ] && [ "$library" != no ]; then
		echo "the dynamic linker does not know libapus yet: ldconfig"
	fi
	if [ -z "$root" ] && [ -d /run/systemd/system ]; then
		echo "systemd does not know the units yet: systemctl daemon-reload"
	fi
}

uninstall_all() {
	local before=$root$prefix/$manifest
	if [ ! -f "$before" ]; then
		echo "uninstall: $before is missing: nothing was installed there by make install; see PREFIX and DESTDIR" >&2
		exit 3
	fi
	list=$(mktemp)
	trap 'rm -f "$list"' EXIT
	cp "$before" "$list"
	remove "$list" /dev/null
	echo "removed $(grep -vc '/$' "$list") files below $root$prefix"
}

case ${1:-} in
install) install_all ;;
uninstall) uninstall_all ;;
*)
	echo "usage: $0 install|uninstall" >&2
	exit 2
	;;
esac
