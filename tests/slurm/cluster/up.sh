#!/usr/bin/env bash
# Brings up a Slurm cluster on this machine: a slurmctld and four slurmd, each in a network namespace with its own
# address and host name.  Prints the folder of its client commands, for the PATH:
#
#   bin=$(tests/slurm/cluster/up.sh) && PATH=$bin:$PATH python -m pytest tests/slurm
#   tests/slurm/cluster/down.sh
#
# Needs root, and apt-get (Debian or Ubuntu) to install missing packages, which down.sh does not remove.  Each node
# claims four CPUs and four GPUs, whatever the machine has: the cluster shows that jobs run, not how fast.  Exit code
# 77: this machine cannot run the cluster.  SLURM_CLUSTER is the folder for all files; its last component names the
# cluster.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cluster=${SLURM_CLUSTER:-/tmp/pycoll-cluster}
nodes="n1 n2 n3 n4"
network=10.99.78

# only the last line goes to stdout
exec 3>&1 >&2
refuse() {
  echo "no Slurm cluster: $*"
  exit 77
}
[ "$(id -u)" = 0 ] || refuse "network namespaces need root"
if [ -e "$cluster" ]; then
  echo "$cluster already exists; $here/down.sh takes that cluster down"
  exit 1
fi

pmix=/usr/lib/$(uname -m)-linux-gnu/pmix2/lib
if ! type slurmctld slurmd munged sbatch ip > /dev/null 2>&1 || [ ! -e "$pmix/libpmix.so.2" ]; then
  command -v apt-get > /dev/null || refuse "slurmctld, slurmd, munged, sbatch, ip or PMIx is missing, and so is apt-get"
  packages="slurmctld slurmd slurm-client munge libpmix2 iproute2"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages > /dev/null; } ||
    refuse "apt-get install $packages failed"
fi

mkdir -p "$cluster"/{bin,log,munge,pmix,spool,state,tmp}
trap '[ $? = 0 ] || { tail -n 20 "$cluster"/log/* || true; "$here/down.sh"; }' EXIT
name=$(basename "$cluster")
for host in ctl $nodes; do
  ip netns add "$name-$host" || refuse "network namespaces are not allowed"
  echo "$name-$host" >> "$cluster/namespaces"
  ip -n "$name-$host" link set lo up
done

# one subnet, on a bridge in the namespace of the controller, without a route to other networks
in_ctl="ip -n $name-ctl"
$in_ctl link add bridge type bridge
$in_ctl addr add $network.1/24 dev bridge
$in_ctl link set bridge up
printf '127.0.0.1 localhost\n%s.1 ctl\n' $network > "$cluster/hosts"
number=10
for node in $nodes; do
  number=$((number + 1))
  echo "$network.$number $node" >> "$cluster/hosts"
  $in_ctl link add "$node" type veth peer name eth0 netns "$name-$node"
  $in_ctl link set "$node" master bridge up
  ip -n "$name-$node" addr add "$network.$number/24" dev eth0
  ip -n "$name-$node" link set eth0 up
done

cat > "$cluster/slurm.conf" <<END
ClusterName=pycoll
SlurmctldHost=ctl($network.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$cluster/munge/socket,cred_expire=5
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool/%n
TmpFS=$cluster/tmp/%n
SlurmctldPidFile=$cluster/state/slurmctld.pid
SlurmdPidFile=$cluster/state/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
MailProg=/bin/true
KillWait=3
SlurmdTimeout=15
ReturnToService=2
MpiDefault=none
GresTypes=gpu
NodeName=DEFAULT CPUs=4 CoresPerSocket=4 Gres=gpu:4
$(for node in $nodes; do echo "NodeName=$node"; done)
PartitionName=all Nodes=ALL Default=YES
END
for gpu in 0 1 2 3; do
  mknod "$cluster/gpu$gpu" c 1 3 # Slurm requires device files; these are like /dev/null
done
echo "Name=gpu File=$cluster/gpu[0-3]" > "$cluster/gres.conf"
echo "CgroupPlugin=cgroup/v1" > "$cluster/cgroup.conf" # otherwise slurmd looks for cgroups, which may not be mounted

# on HOST COMMAND...: run COMMAND on that host
cat > "$cluster/on" <<END
#!/usr/bin/env bash
export SLURM_CONF=$cluster/slurm.conf
host=\$1
shift
exec ip netns exec "$name-\$host" unshare --uts --mount bash -c '
  hostname "\$0" && mount -t tmpfs tmpfs /dev/shm && mount --bind $cluster/hosts /etc/hosts || exit 1
  # Slurm opens libpmix.so, which only the development package contains
  [ -e $pmix/libpmix.so ] || { mount --bind $pmix $cluster/pmix && mount -t tmpfs tmpfs $pmix &&
    ln -s $cluster/pmix/* $pmix && ln -s libpmix.so.2 $pmix/libpmix.so; } || exit 1
  exec "\$@"' "\$host" "\$@"
END
chmod +x "$cluster/on"
for client in sbatch scancel scontrol sinfo squeue srun; do
  printf '#!/bin/sh\nexec %s/on ctl %s "$@"\n' "$cluster" "$(command -v "$client")" > "$cluster/bin/$client"
  chmod +x "$cluster/bin/$client"
done

# start HOST COMMAND...: run COMMAND on that host in the background
start() {
  setsid "$cluster/on" "$@" < /dev/null > "$cluster/log/$1-$2" 2>&1 3>&- &
}
(umask 077 && head -c 1024 /dev/urandom > "$cluster/munge/key")
start ctl munged -F --key-file="$cluster/munge/key" --socket="$cluster/munge/socket" --pid-file="$cluster/munge/pid" \
  --log-file="$cluster/munge/log" --seed-file="$cluster/munge/seed"
for _ in $(seq 100); do
  [ ! -S "$cluster/munge/socket" ] || break
  sleep 0.05
done
start ctl slurmctld -D -i
for node in $nodes; do
  mkdir "$cluster/spool/$node" "$cluster/tmp/$node"
  start "$node" slurmd -D -N "$node"
done

deadline=$((SECONDS + 30))
while [ $SECONDS -lt $deadline ]; do
  up=$(timeout 5 "$cluster/bin/sinfo" -h -N -o %T 2> /dev/null | grep -cx idle || true)
  if [ "$up" = "$(wc -w <<< "$nodes")" ]; then
    echo "$cluster/bin" >&3
    exit
  fi
  sleep 0.1
done
echo "no Slurm cluster: only $up nodes are up after 30 seconds"
exit 1
