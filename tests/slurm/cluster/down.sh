#!/usr/bin/env bash
# Takes down the cluster of up.sh: ends all processes in its network namespaces, and removes the namespaces and all
# files.
set -euo pipefail
cluster=${SLURM_CLUSTER:-/tmp/pycoll-cluster}
[ -e "$cluster/namespaces" ] || exit 0
mapfile -t namespaces < "$cluster/namespaces"

# running: print the processes of the cluster, including those of its jobs
running() {
  for namespace in "${namespaces[@]}"; do
    ip netns pids "$namespace"
  done
}

for signal in TERM KILL; do
  running | xargs -r kill -s $signal 2> /dev/null || true # some have ended meanwhile
  for _ in $(seq 50); do
    [ -n "$(running)" ] || break
    sleep 0.1
  done
done
for namespace in "${namespaces[@]}"; do
  ip netns del "$namespace"
done
rm -r "$cluster"
