"""The control variables of the MPI library are read and written by name."""

import pytest

from pycoll.runtime import native
from pycoll.tune.export.mpi_t import ControlVariables

pytestmark = pytest.mark.mpi

MPICH = native.library().startswith("MPICH")
NAME = "MPIR_CVAR_BCAST_INTRA_ALGORITHM" if MPICH else "coll_tuned_bcast_algorithm"


def test_a_variable_is_read_and_written():
    variables = ControlVariables()
    assert NAME in variables and variables[NAME] == 0
    values = variables.values(NAME)
    assert values["binomial"] == (1 if MPICH else 6) and values["auto" if MPICH else "ignore"] == 0
    variables[NAME] = values["binomial"]
    try:
        assert ControlVariables()[NAME] == values["binomial"]
    finally:
        variables[NAME] = 0


def test_a_variable_that_the_library_does_not_have():
    variables = ControlVariables()
    assert "no_such_variable" not in variables and variables.get("no_such_variable", 7) == 7
    with pytest.raises(KeyError, match="no control variable no_such_variable"):
        variables["no_such_variable"]
    with pytest.raises(KeyError, match="no control variable no_such_variable"):
        variables.values("no_such_variable")
