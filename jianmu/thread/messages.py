"""StateMessageStore: the messages of a conversation, in a state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast  # Any: any schema, and the fields of a message

from jianmu.engine.state import StateManager
from jianmu.engine.state.freeze import Refused
from jianmu.engine.typefit import fits
from jianmu.errors import NamespaceError, SetupError, UnknownFieldError
from jianmu.message import Message, human

Change: TypeAlias = Callable[[list[Message]], list[Message]]


class StateMessageStore:
    """The messages of a conversation: append, edit and remove by id, each in one write that nothing falls into.

    They are in the field `key`; in a namespace, under a key that the schema does not declare, as JSON.

    Args:
        state_manager: the state.
        key: the field, or the key in the namespace.
        namespace: where they are, if not in a field.

    Raises:
        SetupError: the schema has no such field, or one of another type.
        NamespaceError: the namespace cannot be used, or the schema declares the key.
    """

    def __init__(self, state_manager: StateManager[Any], key: str = "messages", namespace: str | None = None) -> None:
        self._manager, self._key, self._namespace = state_manager, key, namespace
        schema = state_manager.schema
        if namespace is not None:
            schema.check_namespace(namespace)
            if key in schema.fields:
                raise NamespaceError(
                    f"'{key}' is a field of {schema.model.__name__}: in the namespace '{namespace}' the conversation "
                    f'needs a key of its own, StateMessageStore(manager, key="talk", namespace="{namespace}")',
                    field=key,
                )
        elif not fits(list[Message], schema.types.get(key, int)):
            raise SetupError(
                f"{schema.model.__name__} has no field '{key}' for a conversation: "
                f"{key}: Annotated[list[Message], operator.add] = Field(default_factory=list)"
            )

    @property
    def messages(self) -> list[Message]:
        """All messages, the oldest first."""
        try:
            return self._loaded(self._manager.read(self._key, namespace=self._namespace))
        except UnknownFieldError:
            return []

    def __iter__(self) -> Iterator[Message]:
        """Go through the messages."""
        return iter(self.messages)

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.messages)

    def get(self, id: str) -> Message | None:
        """Return the message with this id, or None."""
        return next((one for one in self.messages if one.id == id), None)

    def append(self, *messages: Message) -> None:
        """Put messages at the end.

        Raises:
            StateWriteError: one is no message, or the state refuses it.
        """
        if self._namespace is None and self._manager.has_reducer(self._key):
            self._manager.update({self._key: [*messages]})
        else:
            self._change(lambda old: [*old, *messages])

    def edit(self, id: str, **changes: Any) -> Message:
        """Change fields of the message with this id, which keeps its place, and return it as it is then.

        Raises:
            StateWriteError: there is no such message, or it would be none; nothing was changed.
        """
        made: list[Message] = []

        def edited(old: list[Message]) -> list[Message]:
            place = self._place(old, id)
            content = {"content": human(changes["content"]).content} if "content" in changes else {}
            made[:] = [Message.model_validate({**dict(old[place]), **changes, **content})]
            return [*old[:place], *made, *old[place + 1 :]]

        self._change(edited)
        return made[0]

    def remove(self, *ids: str) -> None:
        """Remove the messages with these ids.

        Raises:
            StateWriteError: one of them is not there; nothing was changed.
        """

        def without(old: list[Message]) -> list[Message]:
            gone = {self._place(old, id) for id in ids}
            return [one for place, one in enumerate(old) if place not in gone]

        self._change(without)

    def clear(self) -> None:
        """Remove all messages."""
        self._change(lambda _: [])

    def _place(self, messages: Sequence[Message], id: str) -> int:
        """Return where the message with an id is."""
        for place, one in enumerate(messages):
            if one.id == id:
                return place
        raise Refused(f"it has no message with the id {id[:64]!r}")

    def _change(self, change: Change) -> None:
        """Write what `change` makes of the messages."""

        def fn(old: object) -> object:
            made = change(self._loaded(old))
            return made if self._namespace is None else [one.model_dump(mode="json") for one in made]

        self._manager.transform_field(self._key, fn, namespace=self._namespace)

    def _loaded(self, value: object) -> list[Message]:
        """Return what is kept as messages."""
        kept = cast("Sequence[Any]", value or ())
        return [*kept] if self._namespace is None else [Message.model_validate(one) for one in kept]
