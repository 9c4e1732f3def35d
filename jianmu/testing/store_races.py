"""Checks of a store: what happens at the same moment, what is cancelled, and one event loop after another."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any  # Any: the loop's side of a coroutine

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from jianmu.engine.checkpoint import Checkpointer, Move, Row, Sought, Stored, Transaction
from jianmu.errors import StoreError, ThreadBusyError
from jianmu.testing.store_scene import (
    NOON,
    Trial,
    Work,
    Writer,
    answer,
    at_once,
    begin,
    demand,
    expiry,
    question,
    same,
    story,
    take,
)

ROUNDS = 5


def _one(found: list[object], what: str) -> None:
    """Fail unless exactly one of several calls gave True, and all others False."""
    wanted = ["False"] * (len(found) - 1) + ["True"]
    same(sorted(map(repr, found)), wanted, f"the outcomes of {what}")


def _moves(*moves: Move) -> Work:
    return lambda store: store.move(moves, wake_at=NOON)


def _commits(step: Transaction) -> Work:
    return lambda store: store.commit(step)


def _enqueues(text: str) -> Work:
    return lambda store: store.enqueue("t", Row("input", "in", text), wake_at=NOON)


def _claims(by: str) -> Work:
    return lambda store: store.claim("q", by, NOON + 9, now=NOON)


def _takes(thread_id: str) -> Work:
    return lambda store: take(store, thread_id)


def _answers(id: str) -> list[Work]:
    """Return six answers to a question and its expiry."""
    return [*(_moves(answer(id, ended=f'"{who}"')) for who in range(6)), _moves(expiry(id))]


async def one_of_racing_answers_wins(trial: Trial) -> None:
    """Of six answers and an expiry at the same moment exactly one wins, over two stores, and is the one kept."""
    ids = [f"q{n}" for n in range(ROUNDS)]
    async with trial.open() as one, trial.open() as two:
        await begin(one, "t", *ids)
        for id in ids:
            calls = [work((one, two)[n % 2]) for n, work in enumerate(_answers(id))]
            _one(await at_once(*calls), "six answers and an expiry")
        asked = await one.questions(Sought(status=None))
        demand(all(row.status in {"answered", "expired"} and row.ended for row in asked), "a question has no end")
        same(await two.mail("t"), ROUNDS, "the mail after five questions were answered")


async def one_of_racing_answers_wins_across_threads(trial: Trial) -> None:
    """Of six answers and an expiry from plain threads, each with an event loop and a store of its own, one wins."""
    ids = [f"q{n}" for n in range(ROUNDS)]
    async with trial.open() as store:
        await begin(store, "t", *ids)
    for id in ids:
        _one(await trial.in_threads(*_answers(id)), "six answers and an expiry")
    async with trial.open() as store:
        same(await store.mail("t"), ROUNDS, "the mail after five questions were answered")


async def moves_and_commits_do_not_block(trial: Trial) -> None:
    """Moves of questions of two threads in both orders, and commits of their runs, get through at the same time."""
    async with trial.open() as store:
        writers = [await begin(store, name, *(f"{name}{n}" for n in range(ROUNDS))) for name in "ab"]
    for n in range(ROUNDS):
        both = answer(f"a{n}"), answer(f"b{n}")
        works = [_moves(*both), *(_commits(writer.step()) for writer in writers), _moves(*reversed(both))]
        same(sorted(map(repr, await trial.in_threads(*works))), ["False", "True", "True", "True"], "their outcomes")
        for writer in writers:
            writer.number += 1


async def one_of_several_writers_gets_the_lease(trial: Trial) -> None:
    """Of six that want a thread at the same moment one gets it, whether it is there or has to be made."""
    async with trial.open() as store:
        await (await begin(store, "there")).end()
    for thread_id in ("there", "new", "new2"):
        found = await trial.in_threads(*[_takes(thread_id)] * 6)
        kinds = sorted(type(value).__name__ for value in found)
        same(kinds, [ThreadBusyError.__name__] * 5 + ["Writer"], "the outcomes of six that want a thread")


async def one_of_several_transactions_is_written(trial: Trial) -> None:
    """Of several transactions for the same number, sent at the same moment through two stores, one is written."""
    async with trial.open() as one, trial.open() as two:
        writer = await begin(one, "t")
        for _ in range(ROUNDS):
            steps = [writer.step(body=f'"{n}"') for n in range(4)]
            found = await at_once(*(store.commit(step) for store, step in zip((one, two) * 2, steps, strict=True)))
            done = [value for value in found if not isinstance(value, StoreError)]
            same(done, [True], "the outcomes of four transactions, without the refused ones,")
            writer.number += 1
        log = await two.log("t")
        same([number for number, _ in log], list(range(1, ROUNDS + 2)), "the numbers of the log")


async def one_of_racing_inputs_is_queued(trial: Trial) -> None:
    """Of six deliveries of one input at the same moment one is added."""
    async with trial.open() as store:
        await begin(store, "t")
    _one(await trial.in_threads(*(_enqueues(f"[{n}]") for n in range(6))), "six deliveries of an input")
    async with trial.open() as store:
        same(await store.mail("t"), 1, "the mail after one input")


async def one_of_racing_claims_holds(trial: Trial) -> None:
    """Of six people who claim a question at the same moment one has it."""
    async with trial.open() as store:
        await begin(store, "t", "q")
    _one(await trial.in_threads(*(_claims(f"p{n}") for n in range(6))), "six claims")


async def no_answer_is_lost_in_a_release(trial: Trial) -> None:
    """An answer at the moment of a release: the release is refused, or the thread is due; never neither."""
    for name in (f"t{n}" for n in range(2 * ROUNDS)):
        async with trial.open() as store:
            writer = await begin(store, name, name)
        last = writer.step(status="suspended", releases=True, seen=0)
        await trial.in_threads(_commits(last), _moves(answer(name)))
        async with trial.open() as store:
            thread, asked = await store.thread(name), await store.questions(Sought(ids=(name,), status=None))
            same(asked[0].status, "answered", "the status of a question that was answered during a release")
            is_due = name in await store.due(NOON)
            demand(thread is not None and thread.is_held != is_due, "a thread with an answer is in nobody's hands")


async def a_read_is_of_one_moment(trial: Trial) -> None:
    """What is read while a run writes is how the thread stood at one number: snapshot, log, rows and questions."""
    async with trial.open() as store:
        writer = await begin(store, "t", "q1")

    done: list[int] = []

    async def write(store: Checkpointer) -> None:
        number = 1
        while len(done) < 2:
            number += 1
            kept = Row("cache", "c", "[]", number) if number % 3 == 0 else Row("effect", f"e{number}", "[]", number)
            asked = question(f"q{number}", "t", came=number)
            await store.commit(replace(writer.step(rows=(kept,), questions=(asked,)), expected=number - 1))

    async def read(store: Checkpointer) -> None:
        try:
            for _ in range(20):
                _is_of_one_moment(await store.read("t"))
        finally:
            done.append(1)

    same(await trial.in_threads(write, read, read), [None] * 3, "the outcomes of a writer and two readers")


def _is_of_one_moment(found: Stored | None) -> None:
    """Fail unless a thread whose each transaction asks, and each third one has a snapshot, is whole."""
    if found is None:
        raise AssertionError("the thread was not found")
    number, since = found.thread.number, found.snapshot.came if found.snapshot else 0
    same(since, number - number % 3, f"the number of the snapshot at {number}")
    same([each for each, _ in found.log], list(range(since + 1, number + 1)), "the log after it")
    same(len(found.questions), number, "how many questions were asked")
    same(len(found.rows), number - 1 - number // 3, "how many entries there are")


async def a_cancelled_transaction_is_whole_or_nothing(store: Checkpointer) -> None:
    """A transaction that is cancelled on its way is there with all it has or not at all, and the store works on."""
    writer = await begin(store, "t")
    for turn in range(12):
        number = writer.number + 1
        rows, asked = (Row("effect", f"e{turn}", "[]", number),), (question(f"q{turn}", "t", came=number),)
        step = writer.step(rows=rows, questions=asked, body=f'"turn {turn}"')
        await _cancel(partial(store.commit, step), turn)
        thread = await store.thread("t")
        writer.number = thread.number if thread else 0
        there = {
            writer.number == number,
            await store.row("t", "effect", f"e{turn}") is not None,
            await store.count(Sought(ids=(f"q{turn}",))) == 1,
            (number, f'"turn {turn}"') in await store.log("t"),
        }
        demand(len(there) == 1, f"a transaction is there in part, cancelled {turn} turns of the loop after it began")
        await writer.write()


async def _cancel(call: Callable[[], Coroutine[Any, Any, object]], turns: int) -> None:
    """Begin a call and cancel it after some turns of the loop; the last of them take time."""
    async with anyio.create_task_group() as group:
        group.start_soon(call)
        for turn in range(turns):
            await (checkpoint() if turn < 8 else anyio.sleep(0.0002))
        group.cancel_scope.cancel()


async def a_cancelled_call_leaves_the_store_at_work(store: Checkpointer) -> None:
    """Whatever call is cancelled, the store does the next one."""
    writer = await story(store, "t")
    for turn in range(10):
        await _cancel(partial(store.read, "t"), turn)
        await _cancel(partial(store.questions, Sought()), turn)
        await _cancel(partial(store.trim, "t", Row("base", "b", "[]", writer.number)), turn)
        await _cancel(partial(store.enqueue, "t", Row("input", f"{turn}", "[]"), wake_at=NOON), turn)
        await writer.write()
    demand(await store.enqueue("t", Row("input", "last", "[]"), wake_at=NOON), "an input was not taken")
    await store.trim("t", Row("base", "b", "[]", writer.number))
    stored = await store.read("t")
    same(stored and stored.thread.number, 16, "the thread's number")


async def works_on_one_loop_after_another(store: Checkpointer) -> None:
    """One store object is used from several event loops one after the other, on each backend that is installed."""
    writer = await begin(store, "t")

    async def use() -> None:
        await writer.write()
        await story(store, f"t{writer.number}")

    for backend in anyio.get_available_backends() * 2:
        await to_thread.run_sync(partial(anyio.run, use, backend=backend))
    await writer.write()
    same(len(await store.log("t")), writer.number, "the length of the log")


async def tasks_share_a_store(store: Checkpointer) -> None:
    """Many tasks use one store at the same time, each on a thread of its own."""
    found = await at_once(*(story(store, f"t{n}") for n in range(20)))
    same({type(value) for value in found}, {Writer}, "the outcomes of twenty tasks")
    same([len(await store.log(f"t{n}")) for n in range(20)], [5] * 20, "the lengths of their logs")
