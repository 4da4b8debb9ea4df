#!/bin/bash
# engine.sh unpack DIR      PostgreSQL 18 with DocumentDB from Debian's packages, unpacked into DIR (600 MB, once)
# engine.sh run DIR DATA    runs it in the foreground on the directory DATA until its input ends, then removes DATA
#
# Nothing is installed on the machine: the packages come from apt's own sources and run in a chroot of their own. The
# server listens on a Unix domain socket in DATA/run only. Needs root, and apt with Debian's sources.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,6p' "$0" | sed 's/^# \?//' >&2; exit 2; }
verb=$1
mkdir -p "$2"
D=$(cd "$2" && pwd)
R=$D/root

fail() {
	echo "engine.sh: $*" >&2
	exit 1
}

# inside DATA COMMAND … runs a command in the chroot as another user, with DATA as /data.
inside() {
	local data=$1
	shift
	# shellcheck disable=SC2016 # the inner shell expands them
	exec unshare --mount --propagation private bash -c '
		R=$1 data=$2; shift 2
		mount --rbind /dev "$R/dev" && mount -t proc proc "$R/proc" && mount --bind "$data" "$R/data" &&
		exec chroot --userspec=101:104 "$R" /usr/bin/env -i PATH=/usr/lib/postgresql/18/bin:/usr/bin:/bin \
			LANG=C.UTF-8 HOME=/data "$@"' _ "$R" "$data" "$@"
}

fetch() {
	local mirror apt=$D/apt
	mkdir -p "$apt"/lists/partial "$apt"/cache/archives/partial
	mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -m1 '/debian/$') || fail "apt knows no source of Debian's"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" >"$apt/sources.list"
	touch "$apt/status"
	local o=(-o "Dir::State::lists=$apt/lists" -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
		-o "Dir::Cache=$apt/cache" -o "Dir::State::status=$apt/status" -o APT::Sandbox::User=root)
	apt-get "${o[@]}" -qq update >&2 || fail "apt reads no index of packages"
	apt-get "${o[@]}" -qq -y -d install --no-install-recommends \
		postgresql-18-documentdb postgresql-18-postgis-3-scripts bash coreutils >/dev/null ||
		fail "apt has no postgresql-18-documentdb"
}

unpack() {
	mkdir -p "$R"/usr/{bin,lib,lib64,sbin}
	for l in bin lib lib64 sbin; do ln -sfn usr/$l "$R/$l"; done
	for deb in "$D"/apt/cache/archives/*.deb; do
		dpkg --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$R" -f -
	done
	rm -rf "$D/apt"
	[ -e "$R/usr/bin/sh" ] || ln -s bash "$R/usr/bin/sh"
	ln -sf postgis-3.control "$R/usr/share/postgresql/18/extension/postgis.control" # as its postinst does
	mkdir -p "$R"/{dev,proc,tmp,data,etc}
	chmod 1777 "$R/tmp"
	echo 'postgres:x:101:104::/data:/bin/sh' >"$R/etc/passwd"
	echo 'postgres:x:104:' >"$R/etc/group"
	chroot "$R" /sbin/ldconfig
}

# template makes the directory that each run gets a copy of: a database with the extension.
template() {
	rm -rf "$D/template"
	mkdir -p "$D/template/run"
	chown -R 101:104 "$D/template"
	(inside "$D/template" initdb -D /data/pg -U lab -A trust --encoding=UTF8 --locale=C.UTF-8 --wal-segsize=4) >/dev/null
	cat >>"$D/template/pg/postgresql.conf" <<-'X'
		listen_addresses = ''
		unix_socket_directories = '/data/run'
		shared_preload_libraries = 'pg_cron, pg_documentdb_core, pg_documentdb'
		cron.database_name = 'postgres'
		cron.launch_active_jobs = off
		documentdb.useFileBasedPersistedCursors = on
		documentdb.defaultCursorExpiryTimeLimitSeconds = 600
		documentdb.localhost_connection_string = 'host=/data/run user=lab dbname=postgres'
		wal_level = logical
		max_connections = 160
		max_wal_senders = 4
		max_replication_slots = 4
		fsync = off
		full_page_writes = off
		jit = off
	X
	echo "create extension documentdb cascade" |
		(inside "$D/template" bash -c 'pg_ctl -D /data/pg -w -l /data/log start && psql -q -h /data/run -U lab -d postgres -v ON_ERROR_STOP=1
			r=$?; pg_ctl -D /data/pg -m fast -w stop; exit $r') >"$D/log" 2>&1 || fail "the extension cannot be created: $(tail -3 "$D/log")"
}

case $verb in
unpack)
	[ "$(id -u)" = 0 ] || fail "needs root"
	command -v apt-get >/dev/null && command -v unshare >/dev/null || fail "needs apt-get and unshare"
	exec 9>"$D/lock"
	flock 9
	[ -e "$D/unpacked" ] && exit 0
	fetch
	unpack
	template
	touch "$D/unpacked"
	;;
run)
	[ $# = 3 ] || fail "run DIR DATA"
	mkdir -p "$3"
	data=$(cd "$3" && pwd)
	trap 'rm -rf "$data"' EXIT
	trap '' INT # of a terminal: the input ends then
	cp -a --reflink=auto "$D/template/." "$data"
	(inside "$data" postgres -D /data/pg </dev/null) &
	server=$!
	# The input ends with its owner, however that ends.
	exec 3<&0
	cat <&3 >/dev/null &
	watch=$!
	wait -n "$server" "$watch" || true
	kill "$watch" 2>/dev/null || true
	# Before it is PostgreSQL, the process ignores the signal of a fast shutdown.
	while kill -INT "$server" 2>/dev/null; do sleep 0.1; done
	;;
*) fail "unpack or run, not $verb" ;;
esac
