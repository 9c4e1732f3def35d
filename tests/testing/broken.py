"""Stores with one fault each, and the check that has to find it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from threading import Barrier
from typing import Any

import anyio
from anyio.lowlevel import checkpoint, current_token

from jianmu.engine.checkpoint import Lease, Row, Sought
from jianmu.errors import LeaseLostError, StoreError, ThreadBusyError
from jianmu.stores import MemoryStore
from jianmu.testing.store_scene import NOON, answer

Real = Callable[..., Awaitable[Any]]
BROKEN: dict[str, tuple[str, str, Callable[..., Any]]] = {}


def broken(method: str, finds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a fault: what stands in the place of a store's method, and the check that finds it."""

    def enter(fault: Callable[..., Any]) -> Callable[..., Any]:
        BROKEN[fault.__name__] = (method, finds, fault)
        return fault

    return enter


def broken_store(name: str) -> type[MemoryStore]:
    """Return a kind of store with one fault, which gets the store, the real method, and what it was called with."""
    method, _, fault = BROKEN[name]

    def replaced(store: MemoryStore, *args: Any, **options: Any) -> Any:
        return fault(store, getattr(super(Broken, store), method), *args, **options)

    class Broken(MemoryStore):
        pass

    setattr(Broken, method, replaced)
    return Broken


# The log


@broken("close", finds="data_outlives_its_store")
async def forgets_all_when_closed(store, real):
    await real()
    for thread in await store.threads():
        await store.delete(thread.thread_id)


@broken("commit", finds="another_number_changes_nothing")
async def takes_any_number(store, real, step):
    thread = await store.thread(step.lease.thread_id)
    return await real(replace(step, expected=thread.number if thread else 0))


@broken("commit", finds="numbers_grow_by_one")
async def skips_numbers_without_a_body(store, real, step):
    return await real(replace(step, body=step.body or "[]"))


@broken("commit", finds="a_transaction_is_all_or_nothing")
async def writes_what_can_be_written(store, real, step):
    try:
        return await real(step)
    except LeaseLostError:
        raise
    except StoreError:
        await real(replace(step, questions=()))
        raise


@broken("commit", finds="a_transaction_keeps_to_its_thread")
async def delivers_for_everybody(store, real, step):
    if step.delivered and step.delivered[0].ended:
        row = (await store.questions(Sought(ids=(step.delivered[0].id,))))[0]
        move = answer(row.id, status="withdrawn", ended=step.delivered[0].ended)
        await store.move([move], wake_at=NOON)
    return await real(step)


@broken("commit", finds="a_row_takes_the_place_of_its_like")
async def never_removes_a_row(store, real, step):
    return await real(replace(step, gone=()))


@broken("commit", finds="a_closed_row_can_be_looked_up")
async def removes_closed_rows(store, real, step):
    return await real(replace(step, closed=(), gone=step.gone + step.closed))


@broken("read", finds="reads_what_was_needed_at_a_number")
async def reads_the_end_only(store, real, thread_id, *, at=None):
    return await real(thread_id)


@broken("read", finds="the_newest_snapshot_counts")
async def reads_from_the_oldest_snapshot(store, real, thread_id, *, at=None):
    return await real(thread_id, at=at and min(at, 4))


@broken("read", finds="reads_what_was_needed_at_a_number")
async def reads_what_came_later(store, real, thread_id, *, at=None):
    stored = await real(thread_id, at=at)
    return stored and replace(stored, rows=(await real(thread_id)).rows)


@broken("log", finds="log_comes_in_pages")
async def has_no_pages_of_the_log(store, real, thread_id, *, after=0, limit=100):
    return await real(thread_id, after=after)


@broken("rows", finds="rows_of_a_kind_that_are_needed")
async def sorts_rows_by_id(store, real, thread_id, kind):
    return sorted(await real(thread_id, kind), key=lambda row: row.id)


@broken("trim", finds="trim_removes_what_is_done_with")
async def trims_nothing(store, real, thread_id, base):
    return None


@broken("trim", finds="trim_removes_what_is_done_with")
async def trims_too_much(store, real, thread_id, base):
    await real(thread_id, replace(base, came=(await store.thread(thread_id)).number))


@broken("trim", finds="trim_keeps_open_questions")
async def loses_questions_on_trim(store, real, thread_id, base):
    await real(thread_id, base)
    store.lost = {thread_id}
    inner = store.read

    async def read(thread_id, *, at=None):
        stored = await inner(thread_id, at=at)
        return replace(stored, questions=()) if thread_id in store.lost else stored

    store.read = read


@broken("acquire", finds="a_fork_leaves_its_source")
async def marks_the_source_of_a_fork(store, real, thread_id, holder, seconds, *, create=False):
    if thread_id == "fork":
        await store.enqueue("source", Row("input", "forked", "[]"), wake_at=NOON)
    return await real(thread_id, holder, seconds, create=create)


@broken("delete", finds="a_fork_needs_nothing_of_its_source")
async def deletes_the_snapshot_that_a_fork_shares(store, real, thread_id):
    base = await store.row("fork", "base", "b")
    await store.trim("fork", replace(base, body="null"))
    return await real(thread_id)


# Leases


@broken("commit", finds="a_lease_runs_out")
async def forgets_the_fence(store, real, step):
    thread = await store.thread(step.lease.thread_id)
    return await real(replace(step, lease=replace(step.lease, fence=thread.fence)) if thread else step)


@broken("acquire", finds="a_lease_runs_out")
async def never_gives_up_a_lease(store, real, thread_id, holder, seconds, *, create=False):
    return await real(thread_id, holder, 60, create=create)


@broken("acquire", finds="one_holder_at_a_time")
async def takes_leases_by_force(store, real, thread_id, holder, seconds, *, create=False):
    try:
        return await real(thread_id, holder, seconds, create=create)
    except ThreadBusyError:
        return Lease(thread_id, 1_000_000, 1, 0)


@broken("acquire", finds="a_thread_is_made_only_if_asked_for")
async def makes_every_thread(store, real, thread_id, holder, seconds, *, create=False):
    return await real(thread_id, holder, seconds, create=True)


@broken("acquire", finds="unseen_before_its_first_transaction")
async def shows_unborn_threads(store, real, thread_id, holder, seconds, *, create=False):
    lease = await real(thread_id, holder, seconds, create=create)
    store.mail = lambda thread_id: checkpoint()
    return lease


@broken("acquire", finds="an_unborn_thread_can_be_taken_over")
async def fences_only_what_was_born(store, real, thread_id, holder, seconds, *, create=False):
    lease = await real(thread_id, holder, seconds, create=create)
    if "commit" not in vars(store):
        inner = store.commit
        store.commit = lambda step: inner(step if step.expected else replace(step, lease=store.lease))
    store.lease = lease
    return lease


@dataclass
class FencesOfAThread:
    """Fences counted anew in each thread, with the real ones behind them."""

    real: dict[tuple[str, int], int]
    last: dict[str, int]


@broken("acquire", finds="a_stale_holder_cannot_write_into_a_new_thread")
async def counts_fences_per_thread(store, real, thread_id, holder, seconds, *, create=False):
    lease = await real(thread_id, holder, seconds, create=create)
    if not hasattr(store, "fences"):
        store.fences, commit = FencesOfAThread({}, {}), store.commit
        store.commit = lambda step: commit(
            replace(step, lease=replace(step.lease, fence=store.fences.real[step.lease.thread_id, step.lease.fence]))
        )
    fence = store.fences.last[thread_id] = 1 if lease.number == 0 else store.fences.last[thread_id] + 1
    store.fences.real[thread_id, fence] = lease.fence
    return replace(lease, fence=fence)


@broken("take", finds="a_thread_is_taken_with_what_is_needed")
async def takes_and_reads_nothing(store, real, *args, **options):
    return replace(await real(*args, **options), stored=None)


@broken("take", finds="an_answer_comes_with_the_lease")
async def answers_whatever_came_meanwhile(store, real, thread_id, *args, known=None, **options):
    known = known and replace(known, mail=max(known.mail, await store.mail(thread_id)))
    return await real(thread_id, *args, known=known, **options)


@broken("acquire", finds="fences_never_repeat")
async def counts_fences_downwards(store, real, thread_id, holder, seconds, *, create=False):
    lease = await real(thread_id, holder, seconds, create=create)
    return replace(lease, fence=lease.fence if lease.number == 0 else 1)


@broken("renew", finds="a_lease_runs_out")
def renews_what_was_lost(store, real, lease, seconds):
    real(lease, seconds)
    return True


@broken("renew", finds="a_lease_is_renewed_from_a_thread")
def renews_nothing(store, real, lease, seconds):
    return True


@broken("release", finds="a_lease_is_given_back")
async def keeps_the_lease(store, real, lease):
    return None


@broken("acquire", finds="a_process_that_is_gone_holds_nothing")
async def does_not_look_for_the_process(store, real, thread_id, holder, seconds, *, create=False):
    return await real(thread_id, json.dumps({"who": holder}), seconds, create=create)


@broken("thread", finds="tells_how_a_thread_stands")
async def rounds_the_due_time(store, real, thread_id):
    thread = await real(thread_id)
    return thread and replace(thread, wake_at=thread.wake_at and round(thread.wake_at))


# What comes from outside


@broken("mail", finds="mail_counts_what_came")
async def only_knows_whether_there_is_mail(store, real, thread_id):
    return min(await real(thread_id), 1)


@broken("claim", finds="a_claim_keeps_others_off")
async def counts_claims_as_mail(store, real, id, by, until, *, now):
    done = await real(id, by, until, now=now)
    if done:
        await store.enqueue("t", Row("input", f"{by}{until}", "[]"), wake_at=NOON)
    return done


@broken("commit", finds="a_release_looks_for_mail")
async def releases_over_mail(store, real, step):
    return await real(replace(step, seen=None))


@broken("commit", finds="a_release_may_ignore_mail")
async def never_releases_over_mail(store, real, step):
    return await real(replace(step, seen=0 if step.seen is None else step.seen))


@broken("enqueue", finds="an_input_is_queued_once")
async def queues_an_input_again(store, real, thread_id, row, *, wake_at):
    if await real(thread_id, row, wake_at=wake_at):
        return True
    return await real(thread_id, replace(row, id=row.id + " again"), wake_at=wake_at)


@broken("move", finds="what_comes_makes_a_thread_due")
async def wakes_nobody(store, real, moves, *, wake_at):
    return await real(moves, wake_at=wake_at + 86_400)


@broken("due", finds="due_are_those_that_nobody_drives")
async def forgets_crashed_threads(store, real, now, *, limit=100):
    found = [await store.thread(id) for id in await real(now, limit=limit)]
    return [thread.thread_id for thread in found if thread.wake_at is not None]


@broken("due", finds="due_are_those_that_nobody_drives")
async def wakes_held_threads(store, real, now, *, limit=100):
    threads = [row for row in await store.threads() if row.wake_at and row.wake_at <= now]
    return [row.thread_id for row in sorted(threads, key=lambda row: row.wake_at)][:limit]


@broken("threads", finds="threads_come_in_pages")
async def sorts_threads_like_a_dictionary(store, real, *, status=None, after=None, limit=100):
    return sorted(await real(status=status, after=after, limit=limit), key=lambda row: row.thread_id.casefold())


# Questions


@broken("questions", finds="a_question_is_kept_as_asked")
async def forgets_reasons(store, real, sought):
    return [replace(row, reason="input") for row in await real(sought)]


@broken("move", finds="a_question_ends_once")
async def lets_every_answer_win(store, real, moves, *, wake_at):
    await real(moves, wake_at=wake_at)
    return True


@broken("move", finds="several_moves_are_all_or_none")
async def moves_one_by_one(store, real, moves, *, wake_at):
    return all([await real([move], wake_at=wake_at) for move in moves])


@broken("move", finds="an_answer_can_be_too_late")
async def takes_late_answers(store, real, moves, *, wake_at):
    return await real([replace(move, now=None) for move in moves], wake_at=wake_at)


@broken("move", finds="a_step_is_taken_once")
async def repeats_steps(store, real, moves, *, wake_at):
    found = {row.id: row.taken for row in await store.questions(Sought(status=None))}
    return await real([replace(move, taken=found.get(move.id, 0)) for move in moves], wake_at=wake_at)


@broken("move", finds="a_claim_keeps_others_off")
async def lets_everybody_answer(store, real, moves, *, wake_at):
    return await real([replace(move, by=None) for move in moves], wake_at=wake_at)


@broken("move", finds="claims_bind_only_people")
async def holds_deadlines_off(store, real, moves, *, wake_at):
    return await real(
        [replace(move, by=move.by or "deadline", now=move.now or NOON) for move in moves], wake_at=wake_at
    )


@broken("commit", finds="a_delivery_is_written_once")
async def delivers_again(store, real, step):
    told = tuple(replace(done, consumed=False) if done.unused else done for done in step.delivered)
    return await real(replace(step, delivered=tuple(replace(done, unused=False) for done in told)))


@broken("questions", finds="an_end_that_came_first_stays")
async def withdraws_what_was_answered(store, real, sought):
    return [replace(row, status="withdrawn" if row.unused else row.status) for row in await real(sought)]


@broken("commit", finds="a_question_can_be_written_anew")
async def asks_only_once(store, real, step):
    found = await store.questions(Sought(ids=tuple(row.id for row in step.questions), status=None))
    kept = {row.id for row in found if row.thread_id == step.lease.thread_id}
    return await real(replace(step, questions=tuple(row for row in step.questions if row.id not in kept)))


@broken("count", finds="questions_are_found_by_their_fields")
async def counts_a_page(store, real, sought):
    return len(await store.questions(sought))


@broken("questions", finds="questions_come_in_pages")
async def gives_the_first_page_for_ever(store, real, sought):
    return await real(replace(sought, after=None))


# Ids and texts


@broken("acquire", finds="each_id_is_a_thread_of_its_own")
async def folds_ids(store, real, thread_id, holder, seconds, *, create=False):
    return await real(thread_id.strip().replace("A", "a"), holder, seconds, create=create)


@broken("delete", finds="delete_touches_no_neighbour")
async def deletes_by_pattern(store, real, thread_id):
    if thread_id == "a_b":
        await real("a%b")
    return await real(thread_id)


@broken("delete", finds="delete_leaves_nothing")
async def deletes_the_first_part(store, real, thread_id):
    done = await real(thread_id)
    inner = store.row

    async def row(thread_id, kind, id):
        return Row("tree", "t", "[1]", 1) if kind == "tree" else await inner(thread_id, kind, id)

    store.row = row
    return done


@broken("commit", finds="texts_come_back_byte_for_byte")
async def writes_texts_anew(store, real, step):
    return await real(replace(step, record=json.dumps(json.loads(step.record))))


@broken("claim", finds="instants_come_back_exactly")
async def rounds_instants(store, real, id, by, until, *, now):
    return await real(id, by, until and round(until, 3), now=now)


@broken("mail", finds="bad_thread_ids_are_refused")
async def looks_for_every_id(store, real, thread_id):
    try:
        return await real(thread_id)
    except StoreError:
        return -1


@broken("claim", finds="odd_texts_from_outside_do_no_harm")
async def lets_errors_through(store, real, id, by, until, *, now):
    id.encode()
    return await real(id, by, until, now=now)


# Races


@broken("move", finds="one_of_racing_answers_wins")
async def looks_and_then_moves(store, real, moves, *, wake_at):
    found = await store.questions(Sought(ids=tuple(move.id for move in moves)))
    await checkpoint()
    await real(moves, wake_at=wake_at)
    return len(found) == len(moves)


@broken("claim", finds="one_of_racing_claims_holds")
async def looks_and_then_claims(store, real, id, by, until, *, now):
    vars(store).setdefault("barrier", Barrier(6, timeout=5))
    found = await store.questions(Sought(ids=(id,)))
    store.barrier.wait()
    await real(id, by, until, now=now)
    return found[0].claimed_by is None


@broken("commit", finds="no_answer_is_lost_in_a_release")
async def looks_and_then_releases(store, real, step):
    if not step.releases:
        return await real(step)
    vars(store).setdefault("barrier", Barrier(2, timeout=5))
    unread = await store.mail(step.lease.thread_id) > step.seen
    inner = store.move

    async def move(moves, *, wake_at):
        done = await inner(moves, wake_at=wake_at)
        store.barrier.wait()
        return done

    store.move = move
    if unread:
        return False
    store.barrier.wait()
    return await real(replace(step, seen=None))


@broken("move", finds="one_of_racing_answers_wins_across_threads")
async def looks_and_then_moves_in_a_thread(store, real, moves, *, wake_at):
    return await _meet_and_move(store, real, moves, wake_at, 7)


@broken("move", finds="moves_and_commits_do_not_block")
async def looks_and_then_moves_two(store, real, moves, *, wake_at):
    return await _meet_and_move(store, real, moves, wake_at, 2)


async def _meet_and_move(store, real, moves, wake_at, parties):
    vars(store).setdefault("barrier", Barrier(parties, timeout=5))
    found = await store.questions(Sought(ids=tuple(move.id for move in moves)))
    store.barrier.wait()
    await real(moves, wake_at=wake_at)
    return len(found) == len(moves)


@broken("acquire", finds="one_of_several_writers_gets_the_lease")
async def looks_and_then_takes(store, real, thread_id, holder, seconds, *, create=False):
    vars(store).setdefault("barrier", Barrier(6, timeout=5))
    before = await store.thread(thread_id)
    if before is None:
        return await real(thread_id, holder, seconds, create=create)
    store.barrier.wait()
    return Lease(thread_id, before.fence + 1, before.number, before.mail)


@broken("commit", finds="one_of_several_transactions_is_written")
async def drops_what_comes_late(store, real, step):
    try:
        return await real(step)
    except StoreError:
        return True


@broken("enqueue", finds="one_of_racing_inputs_is_queued")
async def looks_and_then_queues(store, real, thread_id, row, *, wake_at):
    vars(store).setdefault("barrier", Barrier(6, timeout=5))
    found = await store.row(thread_id, "input", row.id)
    store.barrier.wait()
    await real(thread_id, row, wake_at=wake_at)
    return found is None


@broken("read", finds="a_read_is_of_one_moment")
async def reads_one_after_the_other(store, real, thread_id, *, at=None):
    first = await real(thread_id, at=at)
    second = await real(thread_id, at=at)
    while first.thread.number == second.thread.number:
        await checkpoint()
        second = await real(thread_id, at=at)
    return replace(first, questions=second.questions)


@broken("commit", finds="a_cancelled_transaction_is_whole_or_nothing")
async def writes_in_two_steps(store, real, step):
    done = await real(replace(step, rows=()))
    for _ in range(3):
        await checkpoint()
    for row in step.rows:
        await store.enqueue(step.lease.thread_id, row, wake_at=NOON)
    return done


@broken("enqueue", finds="a_cancelled_call_leaves_the_store_at_work")
async def keeps_its_lock_when_cancelled(store, real, thread_id, row, *, wake_at):
    vars(store).setdefault("gate", anyio.Semaphore(1))
    await store.gate.acquire()
    await checkpoint()
    done = await real(thread_id, row, wake_at=wake_at)
    store.gate.release()
    return done


@broken("commit", finds="tasks_share_a_store")
async def refuses_a_second_task(store, real, step):
    if vars(store).get("is_busy"):
        raise StoreError("a cursor is in use")
    store.is_busy = True
    await checkpoint()
    store.is_busy = False
    return await real(step)


@broken("commit", finds="numbers_grow_by_one")
async def hangs(store, real, step):
    await anyio.sleep_forever()


@broken("commit", finds="works_on_one_loop_after_another")
async def belongs_to_one_loop(store, real, step):
    if vars(store).setdefault("loop", current_token()) != current_token():
        raise RuntimeError("another loop")
    return await real(step)
