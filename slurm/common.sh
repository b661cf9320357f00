# What the job scripts have in common; they source it.  The settings are described in README.md.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$root # the bench is not installed with pycoll
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # srun does not take over sbatch's

fail() {
  echo "error: $*" >&2
  exit 1
}

# Sets python and library, which is what its MPI calls itself.
find_python() {
  local program='
import re, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(re.split("[\n,]", MPI.Get_library_version())[0])
'
  python=${PYTHON:-${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/}python3}
  library=$("$python" -c "$program") ||
    fail "$python has no mpi4py with an MPI: activate its virtual environment before sbatch, or set PYTHON"
}

# Sets plugin, by which srun can start the ranks of this MPI, and offered, which is what srun says of its plugins.
find_plugin() {
  local fitting
  offered=$(srun --mpi=list 2>&1 | xargs)
  case $library in
    *"Open MPI"*) fitting="pmix" ;;
    *CRAY*) fitting="cray_shasta pmi2 pmix" ;;
    *) fitting="pmi2 pmix" ;; # MPICH and what is made of it
  esac
  for plugin in ${MPI_PLUGIN:-$fitting}; do
    if [ -n "${MPI_PLUGIN:-}" ] || grep -qw "$plugin" <<< "$offered"; then
      return
    fi
  done
  fail "$library needs srun --mpi=${fitting// / or }, but it has not ($offered). Set MPI_PLUGIN."
}

# prepare DIR [NODES]: make DIR for results, and see to it that launch starts one job on all tasks of so many nodes
# (default: all of the allocation).
prepare() {
  mkdir -p "$1"
  nodes=${2:-$SLURM_JOB_NUM_NODES}
  tasks=$((${SLURM_NTASKS:-$((SLURM_JOB_NUM_NODES * ${SLURM_NTASKS_PER_NODE:-1}))} * nodes / SLURM_JOB_NUM_NODES))
  find_python
  find_plugin
  echo "$library, srun --mpi=$plugin, $tasks ranks on $nodes of $SLURM_JOB_NUM_NODES nodes ($SLURM_JOB_NODELIST)"
  echo "$python, results in $(realpath "$1")"
  # without a fitting plugin each rank would be a job of its own, and measure nothing; or they wait for each other
  SLURM_TIMELIMIT=10 launch -c '
import os, sys
from mpi4py import MPI
found = MPI.COMM_WORLD.size
if found != int(sys.argv[1]):
    sys.exit(f"COMM_WORLD.size is {found}" if os.environ["SLURM_PROCID"] == "0" else 1)
' "$tasks" ||
    fail "the communicator does not have the size of the allocation, $tasks: srun --mpi=$plugin does not start" \
      "$library. Set MPI_PLUGIN to one that does, of: $offered"
}

# launch ARGUMENTS...: python ARGUMENTS, on all ranks
launch() {
  local start=()
  [ "$plugin" != pmi2 ] || start=("$root/slurm/pmi2.py")
  srun --mpi="$plugin" --nodes="$nodes" --ntasks="$tasks" --kill-on-bad-exit=1 "$python" "${start[@]}" "$@"
}

# Sets settings: options for the bench and for pycoll.tune, from what the user has set.
read_settings() {
  read -ra settings <<< "${PRIMITIVES:-}"
  [ -z "${MINBYTES:-}" ] || settings+=(-b "$MINBYTES")
  [ -z "${MAXBYTES:-}" ] || settings+=(-e "$MAXBYTES")
  [ -z "${STEPFACTOR:-}" ] || settings+=(-f "$STEPFACTOR")
  [ -z "${BUDGET:-}" ] || settings+=(--budget "$BUDGET")
}

# bench FILE ARGUMENTS...: results go to FILE.json, FILE.csv and FILE.png
bench() {
  local file=$1 options names
  shift
  : "${STEPFACTOR:=4}"
  read_settings
  read -ra names <<< "$(tr , ' ' <<< "${ALGORITHM:-}")" # spaces do as well: sbatch --export has commas between variables
  [ ${#names[@]} = 0 ] || settings+=(-a "$(IFS=,; echo "${names[*]}")")
  read -ra options <<< "${BENCH_OPTIONS:-}"
  launch -m bench "${settings[@]}" "${options[@]}" "$@" --json "$file.json" --csv "$file.csv" --plot "$file.png"
}

# report DIR FILE...: an HTML report on results; on this node, without MPI
report() {
  local directory=$1
  shift
  "$python" -m bench.report "$@" -o "$directory"
  echo "report in $(realpath "$directory")"
}
