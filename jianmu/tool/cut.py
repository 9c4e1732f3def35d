"""How a result that is too long is cut."""

from __future__ import annotations

from jianmu.tool.types import Content, FilePart, ImagePart, TextPart


def cut(content: Content, most: int | None) -> Content:
    """Return a content whose texts have at most so many characters, and a note where something is missing.

    Args:
        content: a text or parts; images and files count nothing.
        most: how many characters stay; None is all.
    """
    if most is None or (isinstance(content, str) and len(content) <= most):
        return content
    texts = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, TextPart)]
    total = sum(len(text) for text in texts)
    if total <= most:
        return content
    note = f"\n[cut: these are the first {most} of {total} characters]"
    if isinstance(content, str):
        return content[:most] + note
    kept: list[TextPart | ImagePart | FilePart] = []
    left = most
    for part in content:
        text = part.text[: max(left, 0)] if isinstance(part, TextPart) else ""
        left -= len(text)
        if text or not isinstance(part, TextPart):
            kept.append(TextPart(text=text) if text else part)
    return (*kept, TextPart(text=note.strip()))
