"""Conversations as every provider takes them: each tool call has exactly one result, right after it, in call order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from jianmu.message import Message, tool_result
from jianmu.tool.types import ToolCall

LOST = "This call was cut off: it has no result, and whether it took effect is not known."


def paired(messages: Iterable[Message]) -> list[Message]:
    """Return a conversation in which each tool call has exactly one result, next to it, in call order.

    A result that stands elsewhere is moved, a second one and one for no call are left out, a missing one says so. A
    call whose id another call had before gets an id of its own. All other messages stay as they are, in their order,
    and what is paired already comes out the same.
    """
    return Pairing()([*messages])


class Held:
    """The messages that somebody has looked at, so that of a conversation that goes on only the rest has to be."""

    def __init__(self) -> None:
        self._messages: Sequence[Message] = ()

    def fresh(self, messages: Sequence[Message]) -> Sequence[Message] | None:
        """Return what has come after the messages that are held, or None where these are not the same any more."""
        count = len(self._messages)
        if not count:
            return messages
        if len(messages) < count or messages[count - 1] is not self._messages[-1]:
            return None
        return messages[count:] if messages[:count] == self._messages else None

    def hold(self, messages: Sequence[Message]) -> None:
        """Hold these messages, a list that nobody changes."""
        self._messages = messages


class Pairing:
    """Pair a conversation as `paired` does, over and over: of one that goes on, only what is new is looked at."""

    def __init__(self) -> None:
        self._held = Held()
        self._taken = set[str]()

    def __call__(self, messages: Iterable[Message]) -> list[Message]:
        """Return the conversation paired; a list that is, as it is."""
        given = messages if isinstance(messages, list) else [*messages]
        start = 0
        while start < len(given) and given[start].role == "system":
            start += 1
        talk = given[start:]  # a system prompt is a new message in each request
        fresh = self._held.fresh(talk)
        if fresh is None:
            self._taken.clear()
            self._held.hold([])
            fresh = talk
        ids = _ids_if_paired(fresh, self._taken)
        if ids is None:
            return _rearranged(given)
        self._held.hold(talk)
        self._taken |= ids
        return given


class KnownIds:
    """The ids of a conversation's messages and of their calls; of one that goes on, only what is new is looked at."""

    def __init__(self) -> None:
        self._held = Held()
        self.messages = set[str]()
        self.calls = set[str]()

    def look(self, messages: Sequence[Message]) -> None:
        """Have the ids of these messages, as a state has them: a list that nobody changes."""
        fresh = self._held.fresh(messages)
        if fresh is None:
            self.messages.clear()
            self.calls.clear()
            fresh = messages
        self.messages |= {message.id for message in fresh}
        self.calls |= {call.id for message in fresh for call in message.tool_calls}
        self._held.hold(messages)


def _rearranged(given: Sequence[Message]) -> list[Message]:
    """Return a conversation that is not paired as one that is."""
    results = _results(given)
    made: list[Message] = []
    taken: set[str] = set()
    for place, message in enumerate(given):
        if message.role == "tool":
            continue
        whole = with_own_ids(message, taken)
        taken.update(call.id for call in whole.tool_calls)
        made.append(whole)
        for number, call in enumerate(whole.tool_calls):
            result = results.get((place, number))
            made.append(_for(call.id, result))
    return made


def _ids_if_paired(messages: Sequence[Message], before: Collection[str]) -> set[str] | None:
    """Return the ids of the calls if what follows on other calls is as it should be already, as it is most often."""
    taken: set[str] = set()
    awaited: list[str] = []
    for message in messages:
        if message.tool_call_id is not None and awaited and awaited[-1] == message.tool_call_id:
            awaited.pop()
            continue
        if awaited or message.role == "tool":
            return None
        if message.tool_calls:
            awaited = _taken(message.tool_calls, taken)
            if not awaited:
                return None
    return taken if not awaited and taken.isdisjoint(before) else None


def _taken(calls: Sequence[ToolCall], taken: set[str]) -> list[str]:
    """Return the ids of calls, the last one first, which are taken then; none if one of them is empty or was taken."""
    ids: list[str] = []
    for call in calls:
        if not call.id or call.id in taken:
            return []
        taken.add(call.id)
        ids.insert(0, call.id)
    return ids


def with_own_ids(message: Message, taken: Collection[str]) -> Message:
    """Return a message none of whose calls has an id that is taken, nor two of them the same."""
    ids = {call.id for call in message.tool_calls}
    if len(ids) == len(message.tool_calls) and "" not in ids and ids.isdisjoint(taken):
        return message
    names: list[str] = []
    for call in message.tool_calls:
        names.append(next(name for name in _names(call.id) if name not in taken and name not in names))
    calls = zip(message.tool_calls, names, strict=True)
    return message.model_copy(
        update={"tool_calls": tuple(call.model_copy(update={"id": name}) for call, name in calls)}
    )


def without_half(message: Message) -> Message:
    """Return a reply that was cut off without what stands for the arguments of a last call that has none yet.

    Such a call may have been meant to have some: it is one whose arguments are no JSON object.
    """
    calls = message.tool_calls
    if not calls or calls[-1].arguments or calls[-1].raw is not None:
        return message
    return message.model_copy(update={"tool_calls": (*calls[:-1], calls[-1].model_copy(update={"raw": ""}))})


def _names(id: str) -> Iterator[str]:
    """Yield an id, and then others like it."""
    number = 1
    yield id or "call"
    while True:
        number += 1
        yield f"{id or 'call'}_{number}"


def _results(messages: Sequence[Message]) -> dict[tuple[int, int], Message]:
    """Return the result of each call, by the place of its message and its number there.

    A result belongs to the nearest call before it with its id that has none yet; one that has no call before it, to the
    first one after it.
    """
    found: dict[tuple[int, int], Message] = {}
    open_calls: dict[str, list[tuple[int, int]]] = {}
    early: dict[str, Message] = {}
    for place, message in enumerate(messages):
        known = [call.id for call in message.tool_calls]
        for id in {*known}:
            places = [(place, number) for number, other in enumerate(known) if other == id]
            if id in early:
                found[places.pop(0)] = early.pop(id)
            open_calls[id] = places
        id = message.tool_call_id
        if id is None:
            continue
        if id not in open_calls:
            early.setdefault(id, message)
        elif open_calls[id]:
            found[open_calls[id].pop(0)] = message
    return found


def _for(id: str, result: Message | None) -> Message:
    """Return a result as that of this call."""
    if result is None:
        return tool_result(id, LOST, is_error=True, id=f"lost-{id}")
    return result if result.tool_call_id == id else result.model_copy(update={"tool_call_id": id})
