#!/usr/bin/env bash
# A single-node Ceph with its S3 gateway, memory-backed: a real S3 server for tests and benchmarks.
#   ceph-rgw.sh start DIR [PORT]   start; prints "http://127.0.0.1:PORT testkey testsecret" when it answers (about 12 s)
#   ceph-rgw.sh run DIR [PORT]     the same, then serve until standard input closes: it cannot outlive its starter
#   ceph-rgw.sh stop DIR           end every daemon recorded in DIR, and wait until it is gone
# All state is under DIR, which `start` empties if it holds an earlier server. PORT (9200) to PORT+3 must be free.
# With RGW_CERTIFICATE and RGW_KEY, files in PEM, it answers HTTPS at PORT+3 too, on [::1] as well if there is IPv6.
# RGW_DOMAIN: a bucket is also found by a host name below this domain.
# CEPH_MEMORY_BYTES limits the stored bytes (8 GiB). Every daemon listens on loopback only.
set -Eeuo pipefail

readonly TOOLS=(ceph-mon ceph-osd ceph ceph-authtool monmaptool radosgw radosgw-admin curl)
readonly DAEMONS=(client.rgw osd.0 mon.a) # in the order they are stopped
readonly READY_S=60 STOP_S=10

exec 3>&2 # the caller's standard error, for fail() also where start.log takes the other one
fail() { echo "ceph-rgw: $*" >&3; exit 1; }

# The daemon recorded as $1 still runs: its pid file names a live process with our configuration (pids are reused).
alive() {
  pid=$(cat "$dir/run/$1.pid" 2> /dev/null) && [ -n "$pid" ] || return 1
  tr '\0' ' ' 2> /dev/null < "/proc/$pid/cmdline" | grep -qF -- "-c $conf "
}

wait_gone() { # daemon, seconds
  local deadline=$((SECONDS + $2))
  while alive "$1"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.05
  done
}

stop_daemons() {
  local name
  for name in "${DAEMONS[@]}"; do
    if alive "$name"; then
      kill "$pid" 2> /dev/null || true # it may end by itself between the two lines
      if ! wait_gone "$name" "$STOP_S"; then
        kill -KILL "$pid" 2> /dev/null || true
        wait_gone "$name" "$STOP_S" || fail "$name (pid $pid) does not end"
      fi
    fi
    rm -f "$dir/run/$name.pid"
  done
}

on_error() {
  trap - ERR
  stop_daemons
  echo "ceph-rgw: could not start on port $port, see $dir/start.log and the other logs there; its last lines:" >&3
  tail -n 10 "$dir/start.log" >&3
  exit 1
}

check_tools() {
  local tool missing=()
  for tool in "${TOOLS[@]}"; do command -v "$tool" > /dev/null || missing+=("$tool"); done
  ((${#missing[@]} == 0)) || fail "missing ${missing[*]}; run: mount_helpers/install-deps tests"
}

clean_directory() {
  if [ -e "$conf" ]; then
    stop_daemons
    rm -rf "$dir"
  elif [ -n "$(ls -A "$dir" 2> /dev/null)" ]; then
    fail "$dir is not empty and holds no earlier server; give another directory"
  fi
  mkdir -p "$dir"/{mon,osd,rgw,run}
}

# Where radosgw listens, as its option wants it.
frontends() {
  local tls="ssl_certificate=${RGW_CERTIFICATE:-} ssl_private_key=${RGW_KEY:-}" found
  found="beast endpoint=127.0.0.1:$port tcp_nodelay=1"
  if [ -n "${RGW_CERTIFICATE:-}" ]; then
    found+=" ssl_endpoint=127.0.0.1:$((port + 3)) $tls"
    if grep -qs '^0*1 ' /proc/net/if_inet6; then found+=" ssl_endpoint=[::1]:$((port + 3))"; fi
  fi
  echo "$found"
}

write_configuration() {
  cat > "$conf" << CONF
[global]
fsid = $fsid
mon_host = $addresses
public_network = 127.0.0.0/8
ms_bind_ipv6 = false
keyring = $dir/keyring
run_dir = $dir/run
log_file = $dir/\$name.log
admin_socket = $dir/run/\$name.\$pid.asok
pid_file = $dir/run/\$name.pid
auth_allow_insecure_global_id_reclaim = false
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_data_avail_warn = 2
mon_data_avail_crit = 1
[mon]
mon_data = $dir/mon
[osd]
osd_data = $dir/osd
osd_objectstore = memstore
memstore_device_bytes = ${CEPH_MEMORY_BYTES:-8589934592}
[client.rgw]
rgw_data = $dir/rgw
rgw_frontends = $(frontends)
rgw_dns_name = ${RGW_DOMAIN:-}
rgw_run_sync_thread = false
rgw_dynamic_resharding = false
rgw_enable_apis = s3
rgw_crypt_require_ssl = false
rgw_crypt_s3_kms_backend = testing
rgw_crypt_s3_kms_encryption_keys = test-key=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
CONF
}

# Daemons must not inherit the caller's standard error: whoever reads it would wait for their end.
daemon() { timeout "$READY_S" "$@" 3>&-; }

key() { ceph-authtool keyring --gen-key -n "$@"; }

create_keys() {
  touch keyring
  key mon. --cap mon 'allow *'
  key client.admin --cap mon 'allow *' --cap osd 'allow *'
  key client.rgw --cap mon 'allow *' --cap osd 'allow *'
  key osd.0 --cap mon 'allow profile osd' --cap osd 'allow *'
}

start_daemons() {
  local uuid
  uuid=$(cat /proc/sys/kernel/random/uuid)
  monmaptool --create --addv a "$addresses" --fsid "$fsid" monmap
  ceph-mon -c "$conf" --id a --mkfs --monmap monmap --keyring keyring
  daemon ceph-mon -c "$conf" --id a
  timeout "$READY_S" ceph -c "$conf" osd new "$uuid"
  ceph-osd -c "$conf" --id 0 --mkfs --osd-uuid "$uuid"
  daemon ceph-osd -c "$conf" --id 0
  create_user
  add_class
  daemon radosgw -c "$conf" -n client.rgw
}

wait_ready() {
  local deadline=$((SECONDS + READY_S))
  until curl --silent --noproxy '*' --output /dev/null "http://127.0.0.1:$port"; do
    alive client.rgw && ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}

admin() { timeout "$READY_S" radosgw-admin -c "$conf" -n client.rgw "$@"; }

# A storage class beside STANDARD, in a pool of its own. radosgw reads it when it starts; 0.3 s.
add_class() {
  admin zonegroup placement add --rgw-zonegroup default --placement-id default-placement --storage-class COLD
  admin zone placement add --rgw-zone default --placement-id default-placement --storage-class COLD \
    --data-pool default.rgw.cold.data
}

create_user() {
  admin user create --uid=test --display-name=test \
    --access-key=testkey --secret-key=testsecret
}

start() {
  check_tools
  clean_directory
  trap on_error ERR
  fsid=$(cat /proc/sys/kernel/random/uuid)
  addresses="[v2:127.0.0.1:$((port + 1))/0,v1:127.0.0.1:$((port + 2))/0]"
  write_configuration
  cd "$dir"
  { create_keys; start_daemons; wait_ready; } > "$dir/start.log" 2>&1 < /dev/null
  trap - ERR
  echo "http://127.0.0.1:$port testkey testsecret"
}

usage="usage: ceph-rgw.sh start|run|stop DIR [PORT]"
action=${1:?$usage} dir=$(realpath -m "${2:?$usage}") port=${3:-9200}
conf=$dir/ceph.conf
case $action in
  start) start ;;
  run)
    trap stop_daemons EXIT
    trap 'exit 130' INT TERM HUP
    start
    while read -r _; do :; done # a builtin, so that a signal ends it at once
    ;;
  stop) stop_daemons ;;
  *) fail "$usage" ;;
esac
