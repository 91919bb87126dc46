"""Methods that compiled code calls."""

from __future__ import annotations

import sys
import weakref

import pytest

from lpsmap_core import kernel
from lpsmap_jit.native import Callback, call_python

pytestmark = pytest.mark.compiled


class Owner:
    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.callback = Callback(self.note)

    def note(self, what: int, argument: int) -> None:
        if argument < 0:
            raise ValueError(f"{argument}")
        self.calls.append((what, argument))


@kernel
def called(address: int, argument: int) -> int:
    return call_python(address, 3, argument)


def test_compiled_code_calls_a_method() -> None:
    owner = Owner()
    assert called(owner.callback.address, 5) == 0
    assert owner.calls == [(3, 5)]
    owner.callback.raise_error()


def test_an_error_of_the_method_is_raised_once() -> None:
    owner = Owner()
    assert called(owner.callback.address, -1) == 1
    with pytest.raises(ValueError, match="-1"):
        owner.callback.raise_error()
    owner.callback.raise_error()


def test_its_object_dies_without_python_code_in_which_ctrl_c_would_be_lost() -> None:
    owner = Owner()
    alive, events = weakref.ref(owner), []
    sys.setprofile(lambda frame, event, argument: events.append(event))
    del owner
    sys.setprofile(None)
    assert alive() is None
    assert "call" not in events
