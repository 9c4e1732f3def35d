"""A whole assistant from one call: it plans, asks, works with files in a sandbox, delegates, and names its thread."""

import tempfile
from pathlib import Path

import anyio

from jianmu import human
from jianmu.prebuilt import react
from jianmu.stores import SQLiteStore
from jianmu.testing import ScriptedModel
from jianmu.thread import Task, ThreadFolders, save_upload, task, thread_agent
from jianmu.tool import ToolCall

FILE, REPORT = "/mnt/user-data/uploads/sales.csv", "/mnt/user-data/outputs/report.md"


def call(name: str, **arguments: object) -> ToolCall:
    """Return a call, as a model makes it."""
    return ToolCall(id=name, name=name, arguments=arguments)


def plan(status: str) -> dict[str, object]:
    """Return a plan of one item."""
    return {"todos": [{"content": "write the report", "status": status}]}


SCRIPT = [
    [call("write_todos", **plan("in_progress")), call("bash", command=f"tail -1 {FILE}")],
    call("ask_clarification", question="In which language?", options=["English", "German"]),
    call("writer", task="Say in English that June had 7 sales."),
    call("write_file", path=REPORT, content="Seven sales in June."),
    "It is done.",  # too early: the plan is not
    [call("write_todos", **plan("completed")), call("present_files", paths=[REPORT])],
    "Here is your report.",
]


def writer() -> Task:
    """Return a subagent, which works in the thread's folders and knows nothing of the conversation."""
    return task("writer", lambda: react(model=ScriptedModel(["Seven sales in June."])), copies=1)


async def main() -> None:
    """Have a report written; the person answers in another process."""
    with tempfile.TemporaryDirectory() as place:
        folders = ThreadFolders(Path(place) / "threads")
        save_upload(folders, "no. 7", "sales.csv", b"May,3\nJune,7\n")
        async with SQLiteStore(Path(place) / "runs.db") as store:
            wish = human("A report, please", metadata={"files": ["sales.csv"]})
            agent = thread_agent(ScriptedModel(SCRIPT[:2]), [writer()], folders=folders, store=store)
            outcome = await agent.run_until_suspend({"messages": [wish]}, thread_id="no. 7")
            print("asked:", outcome.suspensions[0].message.splitlines())
        async with SQLiteStore(Path(place) / "runs.db") as store:
            model = ScriptedModel(SCRIPT[2:])
            agent = thread_agent(model, [writer()], folders=folders, store=store)
            await agent.resume("English", thread_id="no. 7")
        print("reminded:", model.requests[3].messages[-1].text.splitlines()[1:3])
        state = agent.state
        print("answer:", state.final_answer)
        print("title:", state.title)
        print("plan:", [f"{one.content}: {one.status}" for one in state.todos])
        print("tasks:", [f"{one.name}: {one.status}" for one in state.delegations])
        print("artifacts:", *state.artifacts)
        print("on disk:", (folders.folder("no. 7") / "outputs" / "report.md").read_text())


if __name__ == "__main__":
    anyio.run(main)
