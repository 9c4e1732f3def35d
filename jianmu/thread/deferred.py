"""Tools of which a model knows the names only, until it searches for them: DeferredTools and `tool_search`.

1. The model is not shown the schema of a tool that it has not found; that is the first defence.
2. A call of such a tool is not carried out, and its result says how the tool is found; that is the second.
3. What was found holds for the catalogue as it was: if a tool has another schema by now, all are hidden again, and a
   call that has waited for approval meanwhile is not carried out.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar  # Any: snapshots are the users'

from py_trees.behaviour import Behaviour

from jianmu.engine.context import NodeContext
from jianmu.engine.tree import ancestors, descend, path_of
from jianmu.errors import SetupError
from jianmu.message import Message, TextPart, system
from jianmu.model.base import ModelRequest
from jianmu.nodes.base import is_number
from jianmu.nodes.calldecorator import CallDecorator
from jianmu.nodes.llm import AgentLLMNode, Tools, toolbox_of
from jianmu.nodes.projections import RequestProjection
from jianmu.nodes.tools import ToolExecutor
from jianmu.thread.catalog import Catalogue
from jianmu.thread.items import Promoted
from jianmu.thread.part import Kinds, Part, fields_for
from jianmu.thread.toolsearch import SELECT, search, selected
from jianmu.tool.base import Tool
from jianmu.tool.toolbox import Toolbox
from jianmu.tool.types import ToolCall

TOOL = "tool_search"
MOST = 5
"""Tools that one search finds."""
NAMES = 500
"""Names that the model is told."""


class DeferredTools(Part, RequestProjection, CallDecorator):
    """Show the model of some tools the names only, until it has found them with the tool `tool_search`.

        box = Toolbox(mcp_http("https://example.com/mcp"), *many)
        tree = DeferredTools("deferred", react(model=model, tools=[read, box, tool_search(box)]), tools=box)

    The nodes below have all tools; in a request the schemas of those that were not found are left out, and the system
    prompt has their names. A call of one of them is not carried out: its result says how the tool is found.
    Reads `promoted`, which `tool_search` writes: what was found in a catalogue with another hash counts for nothing.
    Boxes whose tools change while they are open are followed. A call whose approval was open while a tool has changed,
    here or in the program before, is not carried out: what the person has approved may be something else by now. The
    model is told so; when it has found the tool again and calls it, it is asked about anew.
    SUCCESS, FAILURE, RUNNING: as the child. Halting halts the child.

    Args:
        name: the node's name.
        child: what asks the model and carries out its calls.
        tools: those that are deferred: the same that `tool_search` was given.
        search: the name of the tool that finds them.
    """

    reads: ClassVar[tuple[str, ...]] = ("promoted",)
    writes: ClassVar[tuple[str, ...]] = ("promoted",)
    wraps: ClassVar[Kinds] = (AgentLLMNode, ToolExecutor)

    def __init__(self, name: str, child: Behaviour, *, tools: Tools, search: str = TOOL) -> None:
        super().__init__(name, child)
        self.catalogue, self.search = Catalogue(toolbox_of(self, tools)), search

    async def open(self) -> None:
        """Open the box for as long as the tree is open."""
        await self.catalogue.box.open()

    async def close(self) -> None:
        """Close the box."""
        await self.catalogue.box.close()

    def on_bound(self) -> None:
        """Refuse a tree in which the tools cannot be found or called, or another catalogue holds as well."""
        super().on_bound()
        offered = {name for node in descend(self) if isinstance(node, ToolExecutor) for name in node.tools.names}
        if self.search not in offered and not self._may_build_below():
            line = f"write tools=[..., {TOOL}(tools)]"
            raise self._refused(f"needs the tool {self.search} among those that are carried out below it: {line}")
        lost = [name for name in self.catalogue.box.names if name not in offered]
        if lost and not self._may_build_below():
            raise self._refused(f"defers tools that nothing below it carries out: {', '.join(lost)}: give them to it")
        for above in ancestors(self):
            if getattr(above, "inner_state", None) is not None:
                break
            if isinstance(above, DeferredTools):
                where = f"'{path_of(above)}'"
                raise self._refused(f"stands below {where}, and a state has one catalogue: give all tools to one")

    def project(self, request: ModelRequest, snapshot: Any) -> ModelRequest:
        """Return the request without the schemas that are hidden, and with the names."""
        hidden = self.catalogue.hidden(snapshot.promoted)
        if not hidden:
            return request
        tools = [one for one in request.tools if one.name not in {*hidden}]
        return replace(request, tools=tools, messages=_told(request.messages, self._names(hidden), self.context.path))

    def refuse(self, call: ToolCall, snapshot: Any) -> str | None:
        """Refuse the call of a tool that is hidden."""
        if call.name not in self.catalogue.hidden(snapshot.promoted):
            return None
        how = f'{self.search}(query="{SELECT}{call.name}")'
        return f"'{call.name}' is a deferred tool and was not called: find it with {how} first, then call it."

    def refuse_again(self, call: ToolCall, snapshot: Any) -> str | None:
        """Refuse the call of a tool that was found, and is hidden since the tools have changed."""
        if call.name not in self.catalogue.hidden(snapshot.promoted):
            return None
        how = f'{self.search}(query="{SELECT}{call.name}")'
        return (
            f"'{call.name}' was not called: deferred tools have changed since. Find it with {how}, then call it again."
        )

    def _names(self, hidden: Sequence[str]) -> str:
        more = f", and {len(hidden) - NAMES} more" if len(hidden) > NAMES else ""
        return (
            f"There are more tools than are described to you. Before you call one of them, find it with {self.search}, "
            f"which describes it: {', '.join(hidden[:NAMES])}{more}."
        )


def tool_search(tools: Tools, *, name: str = TOOL, most: int = MOST) -> Tool:
    """Return the tool that finds deferred tools and has the model see them; see `DeferredTools`.

    Writes `promoted`. It finds by names, `select:a,b`; by words; or by a pattern for names such as `^mail_.*send|chat`.

    Args:
        tools: those that are deferred.
        name: what the model calls it by.
        most: how many one search finds; those that are selected by name are found all.

    Raises:
        SetupError: these are no tools, or `most` is no whole number from 1 up.
    """
    if isinstance(tools, (str, Tool)) or callable(tools):
        raise SetupError(f"tool_search(tools) takes a Toolbox or a list of tools, not {tools!r}: write [...]")
    if not is_number(most, int) or most < 1:
        raise SetupError(f"tool_search(tools, most=...) takes a whole number from 1 up, not {most!r}")
    box = tools if isinstance(tools, Toolbox) else Toolbox(*(tools or ()))
    return Tool(_Search(Catalogue(box), most).tool_search, name=name, idempotent=True)


class _Search:
    def __init__(self, catalogue: Catalogue, most: int) -> None:
        self._catalogue, self._most = catalogue, most

    async def tool_search(self, query: str, context: NodeContext) -> str:
        """Find tools of which only the names are shown to you; what is found can be called from then on.

        Args:
            query: "select:a,b" for tools by name, words to search for, or a pattern for names: "mail|chat", "^git_.*".
            context: of the node that calls.
        """
        fitting, wanted = search(query, self._catalogue.box.tools), selected(query)
        found = fitting[: self._most] if wanted is None else fitting
        if not found:
            return self._none(query)
        fields_for(context, "promoted")
        names = tuple(one.name for one in found)
        context.write_state({"promoted": Promoted(catalog_hash=self._catalogue.hash, names=names)})
        known = {one.lower() for one in names}
        unknown = [name for name in wanted or () if name not in known]
        told: dict[str, Any] = {
            "tools": [_described(one) for one in found],
            "more": [one.name for one in fitting[len(found) :]][:NAMES],
            "unknown": unknown[:NAMES],
        }
        return json.dumps({key: value for key, value in told.items() if value}, ensure_ascii=False)

    def _none(self, query: str) -> str:
        names = {name.lower(): name for name in self._catalogue.box.names}
        near = difflib.get_close_matches(query.lower().removeprefix(SELECT)[:64], names, 3)
        hint = f"did you mean {', '.join(names[one] for one in near)}?" if near else "try other words"
        return f"No deferred tool fits '{query[:100]}'; {hint}"


def _described(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _told(messages: Sequence[Message], text: str, path: str) -> list[Message]:
    """Return messages with a text at the end of the system prompt."""
    if not messages or messages[0].role != "system":
        return [system(text, id=f"deferred:{path}"), *messages]
    first, *rest = messages
    content = first.content
    longer = f"{content}\n\n{text}" if isinstance(content, str) else (*content, TextPart(text=text))
    return [first.model_copy(update={"content": longer}), *rest]
