"""PYCOLL_CHECK with forms of a collective, and dtypes, that differ between ranks."""

import pytest

from tests.launch import output_of

from .test_consistency import FORMS, PROGRAMS


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["forms", "dtypes"])
def test_forms_and_dtypes_that_differ(name, form):
    output_of(3, PROGRAMS / "consistency_forms.py", name, form, CHECK=1, TIMEOUT=60)
