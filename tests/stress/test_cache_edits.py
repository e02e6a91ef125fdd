"""Every kind of edit, in every way to read what is edited: no kernel may be what it was before."""

from __future__ import annotations

import pytest

from tests.edits import kinds, run


def test_the_disk_cache_after_an_edit(tmp_path, stress_report):
    wrong = []
    with run.servers() as both:
        for number, (edit, way) in enumerate(kinds.EDITS):
            folder = tmp_path / str(number)
            folder.mkdir()
            wrong += [(edit.name, way)] * run.is_stale(both, folder, edit, way)
    stress_report("edits between two processes", tried=len(kinds.EDITS), wrong=len(wrong))
    assert not wrong


SESSIONS = {
    "definitions that a session runs again": (run.run_again, [e for e in kinds.EDITS if e[1] != kinds.STAR]),
    "objects that a session changes": (run.change, kinds.CHANGES),
}


@pytest.mark.parametrize("what", SESSIONS)
def test_a_session_after_an_edit(tmp_path, stress_report, what):
    is_stale, cases = SESSIONS[what]
    wrong = [case for n, case in enumerate(cases) if is_stale(tmp_path, *case, f"stress_{is_stale.__name__}_{n}")]
    stress_report(what, tried=len(cases), wrong=len(wrong))
    assert not wrong
