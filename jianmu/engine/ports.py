"""Ports: what a node takes in and gives out, and what each port is bound to.

A port is declared by an annotation on the class and bound by keyword when the node is built:

    class Think(AsyncNode):
        question: In[str]
        answer: Out[str]

    Think("think", question="task", answer="outputs.summary")
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import (  # Any: annotations are any object, and so are the values of ports
    Any,
    Generic,
    NoReturn,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
    overload,
)  # Any: annotations are any object, and so are the values of ports

from py_trees.behaviour import Behaviour

from jianmu.engine.tree import path_of
from jianmu.engine.typefit import fits, show
from jianmu.errors import SetupError

T = TypeVar("T")
MISSING: Any = object()  # Any: stands for "no default" wherever a value may stand


class In(Generic[T]):
    """An input: read `self.name` to get the value that the port is bound to."""

    def __init__(self, port: Port) -> None:
        self._port = port

    @overload
    def __get__(self, node: None, owner: type) -> Self: ...
    @overload
    def __get__(self, node: Any, owner: type) -> T: ...
    def __get__(self, node: Any, owner: type) -> Any:
        """Return the value: of the field bound, or the literal."""
        return self if node is None else node.context.read_port(self._port.name)

    def __set__(self, node: Any, value: object) -> NoReturn:
        """Refuse the write: it would hide what the port is bound to."""
        name, kind = self._port.name, type(node).__name__
        raise SetupError(
            f"{kind} assigns its input '{name}': bind it, {kind}(\"{node.name}\", {name}=...), or declare an Out"
        )


class Out(Generic[T]):
    """An output: assign `self.name` to write the field that the port is bound to."""

    def __init__(self, port: Port) -> None:
        self._port = port

    @overload
    def __get__(self, node: None, owner: type) -> Self: ...
    @overload
    def __get__(self, node: Any, owner: type) -> T: ...
    def __get__(self, node: Any, owner: type) -> Any:
        """Return the value of the field bound."""
        return self if node is None else node.context.read_port(self._port.name)

    def __set__(self, node: Any, value: T) -> None:
        """Write the field bound."""
        node.context.write_port(self._port.name, value)


@dataclass(frozen=True)
class Const(Generic[T]):
    """A literal for a port, where a plain text would name a field: `Const("text")`."""

    value: T


@dataclass(frozen=True)
class Port:
    """One port as its class declares it; `default` is MISSING where the class gives none."""

    name: str
    is_output: bool
    type: Any
    default: Any = MISSING


@dataclass(frozen=True)
class Binding:
    """What a port is bound to: a field, a key of a dict field, or (where `field` is None) a literal."""

    field: str | None
    key: str | None = None
    literal: Any = None

    def __str__(self) -> str:
        """Return the binding as the user wrote it."""
        return f"{self.field}.{self.key}" if self.key else str(self.field)


def declare(cls: type) -> dict[str, Port]:
    """Read the ports of a class (its bases' included) and put their descriptors in place."""
    ports: dict[str, Port] = dict(getattr(cls, "declared_ports", {}))
    for name, annotation in vars(cls).get("__annotations__", {}).items():
        port = _port(cls, name, annotation)
        if port is None:
            continue
        owner = next((base for base in cls.__mro__[1:] if _is_taken(base, name)), None)
        if owner is not None or name in RESERVED:
            of = owner.__name__ if owner is not None else Behaviour.__name__
            raise SetupError(f"port '{name}' of {cls.__name__} is named like an attribute of {of}: rename it")
        ports[name] = port
        setattr(cls, name, Out(port) if port.is_output else In(port))
    return ports


DECLARES = re.compile(r"\s*(\w+\.)*(In|Out)\s*(\[|$)")
RESERVED = frozenset({"name", "id", "status", "parent", "children", "feedback_message", "logger", "blackboards",
                      "iterator", "context", "qualified_name", "current_child", "decorated"})  # fmt: skip


def _is_taken(base: type, name: str) -> bool:
    """Whether a class of py_trees or jianmu has an attribute of this name that is no port."""
    is_ours = base.__module__.split(".")[0] in ("py_trees", "jianmu")
    return is_ours and name in vars(base) and not isinstance(vars(base)[name], In | Out)


def _port(cls: type, name: str, annotation: Any) -> Port | None:
    """Return the port that an annotation declares, or None if it declares none."""
    if isinstance(annotation, str):
        if not DECLARES.match(annotation):
            return None
        annotation = _evaluate(annotation, cls)
    origin = get_origin(annotation) or annotation
    if origin not in (In, Out):
        return None
    default = _literal(vars(cls).get(name, MISSING))
    return Port(name, origin is Out, (get_args(annotation) or (Any,))[0], default)


def _literal(value: object) -> object:
    """Return what a literal stands for."""
    return cast("Const[object]", value).value if isinstance(value, Const) else value


def _evaluate(text: str, cls: type) -> Any:
    """Evaluate a text annotation in the module of its class and the functions around it."""
    frame = inspect.currentframe()
    names: dict[str, Any] = {}
    while frame is not None:
        names = {**frame.f_locals, **names} if frame.f_globals.get("__name__") == cls.__module__ else names
        frame = frame.f_back
    try:
        known = {"In": In, "Out": Out, **vars(sys.modules[cls.__module__]), **names}
        return eval(text, known)  # noqa: S307  # the class's own annotation
    except NameError:
        return Out[Any] if text.partition("[")[0].endswith("Out") else In[Any]


def bindings(node: Behaviour, ports: Mapping[str, Port], given: Mapping[str, object]) -> dict[str, Binding]:
    """Return what each port is bound to, from the keywords given to a node's constructor."""
    kind = type(node).__name__
    unknown = [name for name in given if name not in ports]
    if unknown:
        near = difflib.get_close_matches(unknown[0], ports)
        hint = f"did you mean '{near[0]}'?" if near else f"its ports are: {', '.join(ports) or 'none'}"
        raise SetupError(f"{kind}('{node.name}') has no port '{unknown[0]}': {hint}")
    return {name: _bound(given[name]) for name in given}


def _bound(value: object) -> Binding:
    """Return the binding that a value means: a text names a field, all else is a literal."""
    if isinstance(value, str):
        field, dot, key = value.partition(".")
        return Binding(field, key if dot else None)
    return Binding(None, literal=_literal(value))


class Fields:
    """What ports need to know of a schema: the type of each field, and whether it takes others."""

    def __init__(self, types: Mapping[str, Any], is_open: bool, name: str) -> None:
        self.types = types
        self.is_open = is_open
        self.name = name


def check(node: Behaviour, ports: Mapping[str, Port], bound: Mapping[str, Binding], fields: Fields) -> None:
    """Check a node's ports against the schema.

    Raises:
        SetupError: a port has no value, names an unknown field, or its type does not fit; with the node's path.
    """
    for port in ports.values():
        binding = bound.get(port.name)
        if binding is None and port.default is MISSING:
            raise _unbound(node, port)
        if binding is not None and binding.field is not None:
            _check_field(node, port, binding, fields)
        else:
            _check_literal(node, port, binding)


def _check_literal(node: Behaviour, port: Port, binding: Binding | None) -> None:
    """Check one port that is bound to no field."""
    path = path_of(node)
    if not port.is_output:
        value = port.default if binding is None else binding.literal
        if not fits(type(value), port.type):
            what = f"takes {show(port.type)}, not {type(value).__name__}"
            raise SetupError(f"node '{path}': port '{port.name}' {what}", path=path)
    elif binding is not None:
        raise SetupError(f"node '{path}' binds output '{port.name}' to a literal: name a field", path=path)


def _unbound(node: Behaviour, port: Port) -> SetupError:
    """Return the error for a port without a value, with the call to write."""
    path, kind = path_of(node), type(node).__name__
    what = "field" if port.is_output else "value"
    call = f'{kind}("{node.name}", {port.name}="<field>")'
    give = "" if port.is_output else ", or give the port a default"
    return SetupError(f"node '{path}' has no {what} for port '{port.name}': bind it, {call}{give}", path=path)


def _check_field(node: Behaviour, port: Port, binding: Binding, fields: Fields) -> None:
    """Check one port that is bound to a field."""
    path = path_of(node)
    where = f"node '{path}' binds port '{port.name}' to '{binding}'"
    name = str(binding.field)
    near = difflib.get_close_matches(name, fields.types, cutoff=0.75)
    if name not in fields.types and (near or not fields.is_open):
        hint = f"did you mean '{near[0]}'?" if near else f"its fields are: {', '.join(fields.types) or 'none'}"
        text = "" if port.is_output or near else f'; if you mean the text itself, write {port.name}=Const("{binding}")'
        raise SetupError(f"{where}, but {fields.name} has no field '{name}': {hint}{text}", path=path)
    kind = fields.types.get(name, Any)
    if binding.key is not None:
        kind = _value_type(kind)
        if kind is MISSING:
            whole = show(fields.types[name])
            raise SetupError(f"{where}, but '{name}' is {whole}: only keys of a dict field can be bound", path=path)
    source, target = (port.type, kind) if port.is_output else (kind, port.type)
    if not fits(source, target):
        arrow = f"gives {show(port.type)}" if port.is_output else f"takes {show(port.type)}"
        raise SetupError(f"{where}: the port {arrow}, but '{binding}' is {show(kind)}", path=path)


def _value_type(annotation: Any) -> Any:
    """Return the type of a dict field's values, or MISSING if the field is no dict."""
    if annotation is Any:
        return Any
    for option in (annotation, *get_args(annotation)):
        if option is dict or option is Mapping:
            return Any
        origin = get_origin(option)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return (*get_args(option), Any, Any)[1]
    return MISSING
