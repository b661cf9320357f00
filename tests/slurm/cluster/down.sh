#!/usr/bin/env bash
# Takes down the cluster that up.sh brought up: ends all that runs in its network namespaces, and removes these and
# its files.
set -euo pipefail
cluster=${SLURM_CLUSTER:-/tmp/pycoll-cluster}
[ -e "$cluster/namespaces" ] || exit 0
mapfile -t namespaces < "$cluster/namespaces"

# running: the processes of the whole cluster, its jobs' among them
running() {
  for namespace in "${namespaces[@]}"; do
    ip netns pids "$namespace"
  done
}

for signal in TERM KILL; do
  running | xargs -r kill -s $signal 2> /dev/null || true # some end by themselves
  for _ in $(seq 50); do
    [ -n "$(running)" ] || break
    sleep 0.1
  done
done
for namespace in "${namespaces[@]}"; do
  ip netns del "$namespace"
done
rm -r "$cluster"
