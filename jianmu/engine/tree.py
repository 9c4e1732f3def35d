"""Where a node is: paths, the order of a tree, its fingerprint, and the rounds of loops."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator

from py_trees.behaviour import Behaviour
from py_trees.decorators import Repeat


def escape(name: str) -> str:
    r"""Return a name as it stands in a path: `\`, `/` and `[` get a backslash."""
    return name.replace("\\", "\\\\").replace("/", "\\/").replace("[", "\\[")


def name_in(path: str) -> str:
    """Return the name of the node at a path."""
    last = re.findall(r"(?:[^\\/]|\\.)+", path, re.DOTALL)[-1:] or [""]
    return re.sub(r"\\(.)|\[.*", r"\1", last[0], flags=re.DOTALL)


def segment(node: Behaviour) -> str:
    """Return the last part of a node's path: its name, with `[2]`, `[3]` after same-named siblings."""
    parent = node.parent
    name = escape(node.name)
    if parent is None:
        return name
    count = 0
    for sibling in parent.children:
        count += sibling.name == node.name
        if sibling is node:
            break
    return f"{name}[{count}]" if count > 1 else name


def path_of(node: Behaviour) -> str:
    """Return a node's path, the names from the root: `"agent/loop/think"`."""
    if node.parent is None:
        return escape(node.name)
    return "/".join(segment(above) for above in reversed([node, *ancestors(node)]))


def ancestors(node: Behaviour) -> Iterator[Behaviour]:
    """Yield the nodes above, the nearest first."""
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def walk(root: Behaviour) -> Iterator[Behaviour]:
    """Yield all nodes, children first, in py_trees' order, at any depth."""
    stack: list[tuple[Behaviour, Iterator[Behaviour]]] = [(root, iter(list(root.children)))]
    while stack:
        node, rest = stack[-1]
        child = next(rest, None)
        if child is None:
            stack.pop()
            yield node
        else:
            stack.append((child, iter(list(child.children))))


def descend(root: Behaviour) -> Iterator[Behaviour]:
    """Yield all nodes, parents first, from left to right, at any depth."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def paths(root: Behaviour, place: str | None = None) -> Iterator[tuple[Behaviour, str]]:
    """Yield all nodes with their paths, parents first, below that of the root; linear in the size of the tree."""
    stack = [(root, path_of(root) if place is None else place)]
    while stack:
        node, path = stack.pop()
        yield node, path
        below = zip(node.children, segments(node.children), strict=True)
        stack.extend(reversed([(child, f"{path}/{part}") for child, part in below]))


def segments(siblings: Iterable[Behaviour]) -> Iterator[str]:
    """Yield the last parts of the paths of all children of one node."""
    seen: dict[str, int] = {}
    for sibling in siblings:
        count = seen[sibling.name] = seen.get(sibling.name, 0) + 1
        yield f"{escape(sibling.name)}[{count}]" if count > 1 else escape(sibling.name)


def fingerprint(root: Behaviour) -> str:
    """Return a digest of all paths and class names (without module) of a tree."""
    digest = hashlib.sha256()
    for node, path in paths(root):
        digest.update(f"{path}\0{type(node).__name__}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def rounds_of(node: Behaviour) -> tuple[tuple[str, object], ...]:
    """Return (path, round) of each loop around a node, outermost first.

    A loop of jianmu gives its round by `round_of(child)`; py_trees' own Repeat by what it has counted.
    """
    rounds: list[tuple[str, object]] = []
    child, above = node, node.parent
    while above is not None:
        asked = getattr(above, "round_of", None)
        if asked is not None:
            context = getattr(above, "_context", None)
            rounds.append((path_of(above) if context is None else context.path, asked(child)))
        elif isinstance(above, Repeat):
            rounds.append((path_of(above), above.success))
        child, above = above, above.parent
    return tuple(reversed(rounds))
