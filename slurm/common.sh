# Functions that all job scripts source.  README.md describes the settings.
# shellcheck shell=bash

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$scripts")
if [ -d "$root/pycoll" ]; then # a checkout, in which pycoll need not be installed
  export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$root
fi
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # srun ignores SLURM_CPUS_PER_TASK

fail() {
  echo "error: $*" >&2
  exit 1
}

# Set `python`, and `library`, the name of its MPI library.
find_python() {
  local program='
import re, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(re.split("[\n,]", MPI.Get_library_version())[0])
'
  python=${PYTHON:-${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/}python3}
  library=$("$python" -c "$program") ||
    fail "$python cannot import mpi4py with an MPI: activate the virtual environment before sbatch, or set PYTHON"
  "$python" -c 'import pycoll' || fail "$python cannot import pycoll"
}

# Set `plugin`, a plugin with which srun can start this MPI library, and `offered`, the plugins that srun lists.
find_plugin() {
  local fitting
  offered=$(srun --mpi=list 2>&1 | xargs)
  case $library in
    *"Open MPI"*) fitting="pmix" ;;
    *CRAY*) fitting="cray_shasta pmi2 pmix" ;;
    *) fitting="pmi2 pmix" ;; # MPICH and its derivatives
  esac
  for plugin in ${MPI_PLUGIN:-$fitting}; do
    if [ -n "${MPI_PLUGIN:-}" ] || grep -qw "$plugin" <<< "$offered"; then
      return
    fi
  done
  fail "$library needs srun --mpi=${fitting// / or }, which is not available ($offered). Set MPI_PLUGIN."
}

# prepare DIR [NODES]: create DIR for the results, and check that `launch` starts one MPI job on all tasks of NODES
# nodes (default: all nodes of the allocation).
prepare() {
  mkdir -p "$1"
  nodes=${2:-$SLURM_JOB_NUM_NODES}
  tasks=$((${SLURM_NTASKS:-$((SLURM_JOB_NUM_NODES * ${SLURM_NTASKS_PER_NODE:-1}))} * nodes / SLURM_JOB_NUM_NODES))
  find_python
  find_plugin
  echo "$library, srun --mpi=$plugin, $tasks ranks on $nodes of $SLURM_JOB_NUM_NODES nodes ($SLURM_JOB_NODELIST)"
  echo "$python, results in $(realpath "$1")"
  # with a wrong plugin, each rank is a separate MPI job, or the ranks wait for each other; stop them after 10 minutes
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

# launch ARGUMENTS...: run python ARGUMENTS on all ranks
launch() {
  local start=()
  [ "$plugin" != pmi2 ] || start=("$scripts/pmi2.py")
  srun --mpi="$plugin" --nodes="$nodes" --ntasks="$tasks" --kill-on-bad-exit=1 "$python" "${start[@]}" "$@"
}

# Set `settings`, the options for bench and pycoll.tune, from the environment variables.
read_settings() {
  read -ra settings <<< "${PRIMITIVES:-}"
  [ -z "${MINBYTES:-}" ] || settings+=(-b "$MINBYTES")
  [ -z "${MAXBYTES:-}" ] || settings+=(-e "$MAXBYTES")
  [ -z "${STEPFACTOR:-}" ] || settings+=(-f "$STEPFACTOR")
  [ -z "${BUDGET:-}" ] || settings+=(--budget "$BUDGET")
}

# bench FILE ARGUMENTS...: run the benchmark, and write the results to FILE.json, FILE.csv and FILE.png
bench() {
  local file=$1 options names
  shift
  : "${STEPFACTOR:=4}"
  read_settings
  read -ra names <<< "$(tr , ' ' <<< "${ALGORITHM:-}")" # allow spaces, because sbatch --export splits at commas
  [ ${#names[@]} = 0 ] || settings+=(-a "$(IFS=,; echo "${names[*]}")")
  read -ra options <<< "${BENCH_OPTIONS:-}"
  launch -m pycoll.bench "${settings[@]}" "${options[@]}" "$@" --json "$file.json" --csv "$file.csv" --plot "$file.png"
}

# report DIR FILE...: write an HTML report on the results to DIR; runs on this node, without MPI
report() {
  local directory=$1
  shift
  "$python" -m pycoll.bench.report "$@" -o "$directory"
  echo "report in $(realpath "$directory")"
}
