"""What is known of a conversation's beginning is not looked at again, and makes no difference to what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jianmu.message import Message, ai, human, system, tool_result
from jianmu.nodes import pairing
from jianmu.nodes.pairing import KnownIds, Pairing, paired
from tests.nodes.talk import call

ROUND = [
    lambda id: [human(f"hello {id}")],
    lambda id: [ai(tool_calls=[call(id)]), tool_result(id, "x")],
    lambda id: [ai(tool_calls=[call(id), call(f"{id}b")]), tool_result(id, "x"), tool_result(f"{id}b", "y")],
    lambda id: [ai(tool_calls=[call(id)])],
    lambda id: [tool_result(id, "orphan")],
    lambda _: [ai(tool_calls=[call("same")]), tool_result("same", "again")],
]
STEP = st.tuples(st.sampled_from(["add", "cut", "edit", "rules"]), st.integers(0, len(ROUND) - 1))


@given(st.lists(STEP, max_size=12))
def test_what_is_remembered_makes_no_difference(steps: list[tuple[str, int]]) -> None:
    """However a conversation grows and is edited: it is paired as one that nobody has seen, and its ids are known."""
    one, ids = Pairing(), KnownIds()
    talk: list[Message] = []
    rules: list[Message] = []
    for number, (what, value) in enumerate(steps):
        if what == "add":
            talk = [*talk, *ROUND[value](f"c{number}")]
        elif what == "cut":
            talk = talk[value:]
        elif what == "rules":
            rules = [system(f"rules {value}")]
        elif value < len(talk):
            talk = [*talk[:value], talk[value].model_copy(update={"content": f"edited {number}"}), *talk[value + 1 :]]
        assert one([*rules, *talk]) == paired([*rules, *talk])
        ids.look(talk)
        assert ids.messages == {message.id for message in talk}
        assert ids.calls == {call.id for message in talk for call in message.tool_calls}


def test_only_what_is_new_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another system prompt each time, a long conversation costs what has come since the last request."""
    looked: list[int] = []
    real: Any = pairing._ids_if_paired

    def counting(messages: Sequence[Message], before: Any) -> Any:
        looked.append(len(messages))
        return real(messages, before)

    monkeypatch.setattr(pairing, "_ids_if_paired", counting)
    one = Pairing()
    talk = [message for number in range(100) for message in ROUND[1](f"c{number}")]
    one([system("now it is 9"), *talk])
    talk = [*talk, human("and?")]
    one([system("now it is 10"), *talk])
    one([system("now it is 10"), *talk])
    assert looked == [200, 1, 0]


def test_a_call_id_of_the_known_part_is_told_apart() -> None:
    """An id that an old call has is no longer free, though the old call is not looked at again."""
    one = Pairing()
    talk = [ai(tool_calls=[call("1")]), tool_result("1", "first")]
    assert one(talk) == talk
    made = one([*talk, ai(tool_calls=[call("1")]), tool_result("1", "second")])
    assert [message.tool_call_id for message in made if message.role == "tool"] == ["1", "1_2"]
    assert one(talk) == talk
