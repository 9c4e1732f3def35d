"""The state of a conversation, ready-made: its parts, what they hold, and the calls that write it."""

from __future__ import annotations

from jianmu.thread.assistant import thread_agent
from jianmu.thread.clarify import Clarify
from jianmu.thread.compact import Compact
from jianmu.thread.deferred import DeferredTools, tool_search
from jianmu.thread.files import ThreadFiles
from jianmu.thread.images import view_image
from jianmu.thread.imagesshown import ForgetImages, ShownImages
from jianmu.thread.items import (
    Delegation,
    Goal,
    LoadedSkill,
    Promoted,
    SandboxRef,
    ThreadPaths,
    Todo,
    UploadedFile,
    ViewedImage,
)
from jianmu.thread.loopguard import LoopGuard
from jianmu.thread.messages import StateMessageStore
from jianmu.thread.outputs import OutputBudget
from jianmu.thread.paths import ThreadData, ThreadFolders
from jianmu.thread.presented import present_files
from jianmu.thread.sandbox import Ran, Sandbox, SandboxLimits
from jianmu.thread.sandboxes import OpenSandbox, Sandboxes, local_sandboxes
from jianmu.thread.sandboxlocal import LocalSandbox
from jianmu.thread.sandboxtools import sandbox_tools
from jianmu.thread.skillsread import RememberSkills
from jianmu.thread.state import (
    ArtifactsState,
    DelegationsState,
    GoalState,
    MessagesState,
    PromotedState,
    RepeatsState,
    RepliesState,
    SandboxState,
    SkillContextState,
    StructuredState,
    SummaryState,
    ThreadDataState,
    ThreadState,
    TitleState,
    TodosState,
    UploadsState,
    ViewedImagesState,
)
from jianmu.thread.task import Task, TaskState, task
from jianmu.thread.tasklimit import SubagentLimit
from jianmu.thread.title import fork_thread, give_title, renamed, title_of_text
from jianmu.thread.titlenode import Title
from jianmu.thread.todos import FinishPlan, PlanReminder, write_todos
from jianmu.thread.uploads import Uploads, save_upload
from jianmu.thread.uploadsshown import ShownUploads
from jianmu.thread.virtualpaths import VirtualPaths

__all__ = [
    "ArtifactsState",
    "Clarify",
    "Compact",
    "DeferredTools",
    "Delegation",
    "DelegationsState",
    "FinishPlan",
    "ForgetImages",
    "Goal",
    "GoalState",
    "LoadedSkill",
    "LocalSandbox",
    "LoopGuard",
    "MessagesState",
    "OpenSandbox",
    "OutputBudget",
    "PlanReminder",
    "Promoted",
    "PromotedState",
    "Ran",
    "RememberSkills",
    "RepeatsState",
    "RepliesState",
    "Sandbox",
    "SandboxLimits",
    "SandboxRef",
    "SandboxState",
    "Sandboxes",
    "ShownImages",
    "ShownUploads",
    "SkillContextState",
    "StateMessageStore",
    "StructuredState",
    "SubagentLimit",
    "SummaryState",
    "Task",
    "TaskState",
    "ThreadData",
    "ThreadDataState",
    "ThreadFiles",
    "ThreadFolders",
    "ThreadPaths",
    "ThreadState",
    "Title",
    "TitleState",
    "Todo",
    "TodosState",
    "UploadedFile",
    "Uploads",
    "UploadsState",
    "ViewedImage",
    "ViewedImagesState",
    "VirtualPaths",
    "fork_thread",
    "give_title",
    "local_sandboxes",
    "present_files",
    "renamed",
    "sandbox_tools",
    "save_upload",
    "task",
    "thread_agent",
    "title_of_text",
    "tool_search",
    "view_image",
    "write_todos",
]
