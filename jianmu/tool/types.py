"""What models and tools exchange: parts of a content, calls, results."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar, cast  # Any: JSON

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    Strict,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema, from_json, to_json

M = TypeVar("M", bound=BaseModel)
_PARTS = "__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"
_give_values, _give_set, _give_extra, _give_private = (BaseModel.__dict__[name].__set__ for name in _PARTS)
_SIMPLE = frozenset({int, float, bool, type(None)})
"""The types of JSON that have no texts in them."""
_FROZEN = ConfigDict(defer_build=True, frozen=True, extra="forbid", allow_inf_nan=False)


def of_valid(kind: type[M], values: dict[str, Any], given: Iterable[str]) -> M:
    """Return a model of values that are known to be valid, some of them given and the others its defaults."""
    made = object.__new__(kind)
    _give_values(made, values)
    _give_set(made, {*given})
    _give_extra(made, None)
    _give_private(made, None)
    return made


def whole_text(text: str) -> str:
    """Return a text that UTF-8 can hold: half characters, as cut escapes leave them, become one or a U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _by_reference(url: str | None) -> str | None:
    if url is not None and url[:5].lower() == "data:":
        raise ValueError("a message refers to its images and files: save the bytes and give path= or url=")
    return url


def _path_text(path: object) -> object:
    return os.fspath(cast("os.PathLike[str]", path)) if isinstance(path, os.PathLike) else path


def whole_json(value: Any) -> Any:
    """Return a JSON value all of whose texts, names included, UTF-8 can hold."""
    if type(value) in _SIMPLE:
        return value
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, dict):
        return {whole_text(name): whole_json(one) for name, one in cast("dict[str, Any]", value).items()}
    return [whole_json(one) for one in cast("list[Any]", value)] if isinstance(value, list) else value


class _Whole:
    """Has texts be made whole; JSON is read without it, for it has no half characters."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of a text."""
        plain = handler(source)
        made_whole = core_schema.no_info_after_validator_function(whole_text, plain)
        return core_schema.json_or_python_schema(plain, made_whole)


Text: TypeAlias = Annotated[str, Strict(), _Whole]  # strict, for bytes are no text


class TextPart(BaseModel):
    """A text among other parts."""

    model_config = _FROZEN

    type: Literal["text"] = "text"
    text: Text


class _Reference(BaseModel):
    model_config = _FROZEN

    url: Annotated[Text | None, AfterValidator(_by_reference)] = None
    path: Annotated[Text | None, BeforeValidator(_path_text)] = None
    mime_type: str | None = None

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if (self.url is None) is (self.path is None):
            raise ValueError("give either url= or path=")
        return self


class ImagePart(_Reference):
    """An image by reference; its bytes are never in a message.

    Attributes:
        url: where it is, or None; no `data:` URL.
        path: the file it is in, or None.
        mime_type: such as `image/png`; None where it follows from the place.
    """

    type: Literal["image"] = "image"


class ImageBytes(ImagePart):
    """An image with its bytes, in a request: a projection makes it, and as JSON it is the reference alone.

    Attributes:
        data: the bytes.
    """

    data: bytes = Field(exclude=True, repr=False)


class FilePart(_Reference):
    """A file by reference, as an image is.

    Attributes:
        name: what people call it.
    """

    type: Literal["file"] = "file"
    name: str | None = None


Part: TypeAlias = Annotated[TextPart | ImagePart | FilePart, Field(discriminator="type")]
PARTS = (TextPart, ImagePart, FilePart)
Content: TypeAlias = Text | tuple[Part, ...]


def content_of(value: object) -> str | tuple[TextPart | ImagePart | FilePart, ...]:
    """Return what a tool has returned as a content: a text as it is, parts as parts, anything else as JSON.

    Raises:
        ValueError: it has no JSON form.
    """
    if isinstance(value, str):
        return value
    if type(value) in _SIMPLE:
        return to_json(value).decode()
    items = [*cast("list[object]", value)] if isinstance(value, (list, tuple)) else [value]
    if any(isinstance(item, PARTS) for item in items) and all(isinstance(item, (str, *PARTS)) for item in items):
        return tuple(TextPart(text=item) if isinstance(item, str) else cast("TextPart", item) for item in items)
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise ValueError("bytes have no JSON form")  # noqa: TRY004  # to the caller it is one fault
    try:
        return to_json(cast("object", value), by_alias=True).decode()
    except Exception:  # noqa: BLE001, S110  # what the value's own code raises; told below
        pass
    raise ValueError(f"{type(cast('object', value)).__name__} has no JSON form")


def _json_text(value: object) -> object:
    return content_of(value) if value is None or type(value) in (dict, int, float, bool) else value


class ToolCall(BaseModel):
    """A model's wish to have a tool called.

    Attributes:
        id: what the result refers to.
        name: the tool's name.
        arguments: by parameter; JSON values.
        raw: the arguments as the model wrote them, where that is no JSON object; `arguments` is empty then.
    """

    model_config = _FROZEN

    id: Text
    name: Text
    arguments: Annotated[dict[str, JsonValue], AfterValidator(whole_json)] = Field(default_factory=dict)
    raw: Text | None = None

    @classmethod
    def parse(cls, id: str, name: str, text: str) -> ToolCall:
        """Return the call for arguments as a model writes them; no text is no arguments."""
        try:
            given: object = from_json(text, allow_inf_nan=False) if text.strip() else {}
        except ValueError:
            given = None
        if not isinstance(given, dict):
            return cls(id=id, name=name, raw=text)
        return cls(id=id, name=name, arguments=cast("dict[str, JsonValue]", given))


class ToolResult(BaseModel):
    """What came of a call.

    Attributes:
        call_id: the id of the call.
        content: what the model is shown: a text or parts. Other JSON values become their text.
        is_error: whether it failed; `content` then says why.
    """

    model_config = _FROZEN

    call_id: str
    content: Annotated[Content, BeforeValidator(_json_text)] = ""
    is_error: bool = False
