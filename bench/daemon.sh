# A daemon for the scripts beside this file, which source it. It needs `sealog` (the binary) and `dir` (a folder, whose subfolder `data`
# is the daemon's); `daemon` is its process, or empty. What begins with `daemon_` is this file's.
# shellcheck shell=bash
daemon=

# Starts one on one shard, with further flags of `sealog serve`, waits until it is ready and sets SEALOG_ADDR and `http`.
daemon_start() {
  rm -f "$dir/ready"
  "$sealog" serve --data-dir "$dir/data" --listen 127.0.0.1:0 --http 127.0.0.1:0 --shards 1 --format json "$@" >"$dir/ready" &
  daemon=$!
  local _
  for _ in $(seq 600); do
    # The line is whole once it ends.
    test -s "$dir/ready" && test "$(wc -l <"$dir/ready")" -gt 0 && break
    kill -0 "$daemon" 2>/dev/null || break
    sleep 0.1
  done
  if ! test -s "$dir/ready"; then
    echo "the daemon was not ready within a minute" >&2
    return 1
  fi
  SEALOG_ADDR=$(sed 's/.*"listen":"\([^"]*\)".*/\1/' "$dir/ready")
  # shellcheck disable=SC2034 # for whoever sources this
  http=$(sed 's/.*"http":"\([^"]*\)".*/\1/' "$dir/ready")
  export SEALOG_ADDR
}

# Asks it to stop and gives its exit code.
daemon_stop() {
  local process=$daemon
  daemon=
  kill -TERM "$process"
  wait "$process"
}

# Ends it at once, as a crash would; nothing if there is none.
daemon_kill() {
  local process=$daemon
  daemon=
  test -z "$process" && return 0
  kill -9 "$process" 2>/dev/null || return 1
  wait "$process" 2>/dev/null || true
}
