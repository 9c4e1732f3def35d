"""SubAgent: an agent's tree as a node in the tree of another, on a state of its own."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias  # Any: both schemas are the users'

from py_trees.behaviour import Behaviour
from py_trees.common import Status

from jianmu.engine.control import Steps
from jianmu.engine.ports import Port
from jianmu.engine.state import Replace, StateChange, StateManager
from jianmu.errors import SetupError
from jianmu.nodes.base import Wrapper, give_ports
from jianmu.nodes.reasons import reason_in

Inputs: TypeAlias = Mapping[str, object] | None
Outputs: TypeAlias = Mapping[str, str] | None


class SubAgent(Wrapper):
    """Run another agent's tree on its own state; the two exchange through the bindings only.

    `inputs` are outer fields, `field.key` or `Const(...)`, by the inner field; `outputs` inner fields by the outer one.
    When it is entered, the run fields of the inner state are set back. Inputs are copied then, and
    again in the pass after the outer field was changed; they replace the inner value.
    SUCCESS, FAILURE: as the inner tree; the outputs are written then, as one write where they are whole fields.
    The feedback of a FAILURE is that of the node inside that failed.
    RUNNING while the inner tree is.
    Halting halts the inner tree; nothing is written.
    """

    is_loop = True
    keeps = ("_seen",)
    _seen = -1

    def __init__(
        self, name: str, root: Behaviour, manager: StateManager[Any], *, inputs: Inputs = None, outputs: Outputs = None
    ) -> None:
        super().__init__(name, root)
        self.inner_state = manager
        self._inputs = {f"inputs.{inner}": inner for inner in inputs or {}}
        self._outputs = {f"outputs.{outer}": inner for outer, inner in (outputs or {}).items()}
        inner_names = self._inputs | self._outputs
        types = manager.schema.types
        ports = {port: Port(port, port in self._outputs, types.get(inner, Any)) for port, inner in inner_names.items()}
        give_ports(self, ports, dict(zip(ports, [*(inputs or {}).values(), *(outputs or {})], strict=True)))
        self._unsubscribe: Callable[[], None] = lambda: None

    def on_bound(self) -> None:
        """Refuse inner names that the inner schema does not have, and have changes of the inner state wake the run."""
        schema, path = self.inner_state.schema, self.context.path
        for port, name in (self._inputs | self._outputs).items():
            known, does = (schema.input_fields, "takes") if port in self._inputs else (schema.output_fields, "gives")
            if name in known or (name not in schema.types and schema.extra is not None):
                continue
            near = difflib.get_close_matches(name, known)
            hint = f"did you mean '{near[0]}'?" if near else f"it {does} {', '.join(known) or 'nothing'}"
            text = f"node '{path}' binds '{name}', but {schema.model.__name__} {does} no such field: {hint}"
            raise SetupError(text, path=path)
        self._unsubscribe()
        self._unsubscribe = self.inner_state.subscribe(self._on_change)

    def initialise(self) -> None:
        """Begin a run of the inner agent."""
        super().initialise()
        self.inner_state.reset_run_fields()

    def steps(self) -> Steps:
        """Copy the inputs, tick the inner tree, write the outputs."""
        self._copy_inputs()
        yield self.decorated
        status = self.update()
        if status is not Status.RUNNING:
            self._write_outputs()
        return status

    def update(self) -> Status:
        """Return the inner tree's status, and say why it has failed."""
        status = super().update()
        if status is Status.FAILURE:
            self.feedback_message = reason_in(self.decorated)
        return status

    def _on_change(self, change: StateChange) -> None:
        if change.changed or not change.fields:
            self.context.run.signal()

    def _copy_inputs(self) -> None:
        """Copy the inputs that were changed since they were copied last."""
        version = self.context.manager.version
        fresh = {
            inner: Replace(self.context.read_port(port)) for port, inner in self._inputs.items() if self._is_new(port)
        }
        self._seen = version
        if fresh:
            self.inner_state.update(fresh, _writer=self.context.path)

    def _is_new(self, port: str) -> bool:
        field = self.port_bindings[port].field
        return self._seen < 0 or (field is not None and self.context.manager.last_change(field)[0] > self._seen)

    def _write_outputs(self) -> None:
        """Write what the inner agent has left, in the name of this node."""
        values = {port: self.inner_state.read(inner) for port, inner in self._outputs.items()}
        bound = self.port_bindings
        whole = {str(bound[port].field): value for port, value in values.items() if bound[port].key is None}
        if whole:
            self.write_state(whole)
        for port, value in values.items():
            if bound[port].key is not None:
                self.write_port(port, value)
