"""Who this process is, and what can be told about others of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from floodmark.work import ProcessName, command_of, is_proven_dead, this_process


def test_a_name_is_read_as_it_was_stored() -> None:
    name = ProcessName("some-host", 12)

    assert str(name) == "some-host, process 12"
    assert ProcessName.stored(str(name)) == name
    assert not name.is_here


@pytest.mark.parametrize("text", ["", "some-host, process 12 (reset)", "some-host", "process 12"])
def test_other_texts_name_no_process(text: str) -> None:
    assert ProcessName.stored(text) is None


def test_this_process_has_one_identity() -> None:
    name, holder = ProcessName.here(), this_process()

    assert name.is_here
    assert (name.host, name.pid) == (holder.host, holder.pid) == (holder.host, os.getpid())
    assert not is_proven_dead(holder)


def test_a_number_that_was_used_again_is_another_process() -> None:
    assert is_proven_dead(replace(this_process(), started="1"))


def test_a_process_has_its_command_until_it_ends() -> None:
    begins = [sys.executable, "-c", "print('there', flush=True); input()"]
    with subprocess.Popen(begins, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # a process that has just begun has no command yet
        there = command_of(process.pid)
        process.kill()
        process.wait()

    assert "input()" in there
    assert command_of(process.pid) == ""
