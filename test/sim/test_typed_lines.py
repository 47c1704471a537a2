from __future__ import annotations

import os
import pty
from collections.abc import Iterator

import pytest

from vla_simd_ros.sim.typed_lines import LONGEST, TypedLines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue  # closed by the test


def test_whole_lines_as_they_come(pipe: tuple[int, int]) -> None:
    read, write = pipe
    lines = TypedLines(read)
    assert list(lines.take()) == []
    os.write(write, b"put the red")
    assert list(lines.take()) == []
    os.write(write, b" cube down\npick it up\nand")
    assert list(lines.take()) == ["put the red cube down", "pick it up"]
    os.close(write)
    assert list(lines.take()) == ["and"]
    assert list(lines.take()) == []


def test_more_than_is_read_at_once_is_all_there(pipe: tuple[int, int]) -> None:
    read, write = pipe
    many = [f"line {number}" for number in range(2000)]
    os.write(write, "\n".join([*many, ""]).encode())
    assert list(TypedLines(read).take()) == many


def test_what_has_no_end_is_not_kept_for_ever(pipe: tuple[int, int]) -> None:
    read, write = pipe
    lines = TypedLines(read)
    for _ in range(20):
        os.write(write, b"x" * 4096)
        assert list(lines.take()) == []
    os.write(write, b"\nnext\n")
    endless, following = lines.take()
    assert following == "next"
    assert endless == "x" * LONGEST


def test_bytes_that_are_no_text_are_told(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.write(write, b"go \xff\xfe left\n")
    (line,) = TypedLines(read).take()
    assert line == "go \ufffd\ufffd left"


def test_a_terminal_of_another_session_is_not_read() -> None:
    """As by a process in the background, which reading would stop."""
    leader, follower = pty.openpty()
    try:
        os.write(leader, b"hello\n")
        assert list(TypedLines(follower).take()) == []
    finally:
        os.close(leader)
        os.close(follower)
