"""The mends (fixes of earlier findings), what goes wrong without each of them, and the tests that hold it.

`python -m benchmarks.faults --unmend P3` removes the mend of P3 from a copy of the sources. The campaign has to find
the fault again within 200 cases; with `--tests`, one of the named tests has to fail. If a line to remove is not there,
that is an error: this list has to follow the code.
"""

from msgspec import Struct


class Change(Struct, frozen=True):
    """A piece of a function's text, and the text that takes its place when the mend is removed."""

    where: str
    """The function, as `module:function` or `module:Class.method`."""
    old: str
    new: str


class Mend(Struct, frozen=True, kw_only=True):
    """The mend of one finding, and how to remove it."""

    what: str
    """What goes wrong without the mend."""
    changes: tuple[Change, ...]
    found: str
    """Pattern of the sentence with which the campaign reports the fault."""
    tests: tuple[str, ...]
    """Tests of which at least one fails without the mend."""


GONE = '(WriteFailed(str(self._path), "it was moved, deleted or replaced"), True)'
MENDS: dict[str, Mend] = {
    "P1": Mend(
        what="the model is told to repeat an effect",
        changes=(
            Change("gesta.decide.open_call:_placeholder", "only_reads(tool) and ", ""),
            Change("gesta.decide.open_call:_doubt", 'if effect == "pure":', 'if effect in ("pure", "idempotent"):'),
            Change("gesta.decide.open_call:_doubt", "tool.agent is not None and", "False and"),
        ),
        found=r"has \d keys|was carried out",
        tests=(
            "tests/journeys/test_promise_p01_to_p15.py::test_a_payment_whose_turn_was_left_is_made_again_under_its_own_key_before_another_message_is_heard",
            "tests/journeys/test_promise_p01_to_p15.py::test_a_sub_agent_whose_parent_was_left_goes_on_and_is_not_called_anew",
            "tests/journeys/test_promise_p01_to_p15.py::test_a_sub_agent_whose_process_dies_four_times_while_it_goes_on_is_not_given_up",
            "tests/journeys/test_effects.py::test_an_idempotent_call_that_is_given_up_is_a_doubt_and_no_model_is_told_to_repeat_it",
        ),
    ),
    "P2": Mend(
        what="one idempotency key for two effects",
        changes=(
            Change(
                "gesta.perform.child:idempotency_key",
                "return os.urandom(32).hex()",
                "return call_key(record, run, call.seq)",
            ),
        ),
        found="one key stands for",
        tests=(
            "tests/journeys/test_promise_p01_to_p15.py::test_after_a_prune_no_payment_has_the_key_of_an_older_one",
            "tests/ribs/test_backup.py::test_after_a_restore_no_payment_has_the_key_of_an_older_one",
        ),
    ),
    "P3": Mend(
        what="a run stays held by its own process",
        changes=(
            Change(
                "gesta.stores.sqlite:InlineSqliteStore.release",
                "except RecordError:\n        pass",
                "except RecordError:\n"
                "        self._writer._leases.presence.back.pop(lease.run, None)\n"
                "        self._writer._leases.presence.using[lease.run] = lease.epoch",
            ),
        ),
        found="RunHeld for|did not come back",
        tests=(
            "tests/ribs/test_sqlite_leases.py::test_a_task_that_is_cancelled_again_and_again_leaves_no_run_held",
            "tests/ribs/test_sqlite_leases.py::test_what_could_not_be_given_back_is_tried_again_by_itself",
            "tests/ribs/test_sqlite_leases.py::test_one_that_writes_for_longer_is_an_error_that_names_the_option_and_every_run_is_free_afterwards",
            "tests/ribs/test_outages_postgres.py::test_after_an_outage_every_run_is_free_without_closing_the_record",
        ),
    ),
    "P4": Mend(
        what="a call whose thread is at work is believed not done",
        changes=(
            Change("gesta.perform.doubts:_look", "over = not works(attempt_name(live, last.seq))", "over = True"),
            Change(
                "gesta.perform.doubts:_look",
                "over = last.process is not None and await _gone(last.process, live)",
                "over = True",
            ),
        ),
        found=r"was carried out \d times, under 1 keys",
        tests=(
            "tests/journeys/test_promise_p01_to_p15.py::test_a_payment_that_outlives_its_timeout_is_not_made_again_while_it_may_be_at_work",
            "tests/journeys/test_promise_p01_to_p15.py::test_a_payment_whose_program_stopped_waiting_is_not_made_again_while_it_may_be_at_work",
            "tests/ribs/test_outages_postgres.py::test_connections_that_are_ended_at_any_instant_lose_nothing_and_repeat_nothing",
        ),
    ),
    "P5": Mend(
        what="a transactional tool that ends the transaction goes on without one",
        changes=(
            Change("gesta.stores.effects:Sql.__call__", "self._over = ENDED", "pass"),
            Change("gesta.stores.effects:Sql.check", 'raise Refused(f"{ENDED}.")', "return"),
            Change(
                "gesta.stores.sqlite_works:Works._transact",
                'if self._connection.in_transaction:\n        self._one.execute("RELEASE effect")',
                'if True:\n        self._one.execute("RELEASE effect")',
            ),
        ),
        found="was booked",
        tests=(
            "tests/ribs/test_sqlite_effects.py::test_a_tool_whose_statement_ends_the_transaction_does_nothing_more_and_keeps_nothing",
            "tests/ribs/test_sqlite_effects.py::test_a_deferred_foreign_key_is_checked_before_the_result",
            "tests/ribs/test_sqlite_effects.py::test_whatever_a_tool_raises_is_its_own_error",
            "tests/ribs/test_transactional_postgres.py::test_a_lost_connection_inside_an_effect_leaves_nothing_and_the_record_goes_on",
            "tests/ribs/test_transactional_postgres.py::test_what_a_tool_did_is_undone_where_its_run_was_lost_meanwhile",
        ),
    ),
    "P6": Mend(
        what="one bad run ends the others of a worker",
        changes=(Change("gesta.worker:Worker._go_on", "self._put_off(row, failure)\n        return", "raise"),),
        found="beside a bad run in a worker",
        tests=("tests/journeys/test_worker.py::test_a_run_that_fails_ends_no_other",),
    ),
    "P7": Mend(
        what="an approval counts though it came too late",
        changes=(Change("gesta.decide.approval:judged_approval", "_expired(letter.at, about) or ", ""),),
        found="an approval that came too late",
        tests=("tests/journeys/test_approvals.py::test_an_approval_that_comes_late_is_refused_whoever_takes_it_in",),
    ),
    "P8": Mend(
        what="waiting for a thread counts as the tool's time",
        changes=(
            Change("gesta.perform.tool_call:_with_slots", "if not work.tool.threaded:", "if True:"),
            Change(
                "gesta.perform.tool_call:_try",
                "returned = await caught(begin(arguments), marks)",
                "own = ThreadSlot(); await own.wait(); returned = await caught(begin(arguments), marks); own.leave()",
            ),
        ),
        found="was never started",
        tests=("tests/journeys/test_promise_p01_to_p15.py::test_a_call_that_waits_for_a_thread_has_not_begun",),
    ),
    "P9": Mend(
        what="processes that write one file have no turns",
        changes=(
            Change("gesta.stores.locks:Turn.waited", "if not self.taken_by(", "if False and not self.taken_by("),
            Change("gesta.stores.locks:Turn.waited", "self.release()", "pass"),
            Change("gesta.stores.sqlite_writer:Writer.at_once", "if not self._queue.taken_at_once():", "if False:"),
            Change("gesta.stores.sqlite_writer:Writer.at_once", "self._queue.release()", "pass"),
            Change(
                "gesta.stores.sqlite_writer:Writer._patient",
                "time.sleep(AGAIN_S)",
                "time.sleep((1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100)[min(_count, 11)] / 1000)",  # SQLite's own
            ),
        ),
        found="beside other writers|a run beside many others",
        tests=(
            "tests/ribs/test_sqlite_leases.py::test_processes_that_write_one_file_all_end_their_runs",
            "tests/ribs/test_sqlite_leases.py::test_who_waits_comes_before_who_has_just_written",
            "tests/ribs/test_sqlite_leases.py::test_a_process_that_waits_writes_before_the_one_that_has_just_written",
        ),
    ),
    "P10": Mend(
        what="threads of one process are taken for another copy of SQLite",
        changes=(Change("gesta.stores.sqlite_guard:refuse_first", "if opened_here(path):", "if False:"),),
        found="threads of one process",
        tests=("tests/ribs/test_sqlite_leases.py::test_threads_of_a_process_use_one_record_with_run_sync",),
    ),
    "P11": Mend(
        what="what was committed to a log that was taken away is not saved",
        changes=(
            Change("gesta.stores.sqlite_writer:Writer._gone", "save(self._connection, self._guard, self._path)", GONE),
            Change(
                "gesta.stores.sqlite_writer:Writer._put_away",
                "in_file(self._connection, self._guard, self._path)",
                "True",
            ),
            Change("gesta.stores.sqlite_guard:Guard.beside", "try:", "return True\n    try:"),
        ),
        found="files at .*(not on record|was carried out|has 2 keys|came out of a turn)",
        tests=("tests/ribs/test_sqlite_saving.py::test_ten_turns_outlive_the_log_that_held_them",),
    ),
    "P12": Mend(
        what="a pushed run goes on in both records",
        changes=(Change("gesta.stores.sqlite_works:Leases.take", "raise RunMirrored(run, mirror_of)", "pass"),),
        found="push at .*was carried out|push at .*has 2 keys|push at .*booked",
        tests=(
            "tests/ribs/test_moving_runs.py::test_a_run_that_was_pushed_is_approved_in_both_and_its_call_is_made_in_one",
        ),
    ),
    "P13": Mend(
        what="a listener that raises ends its turn",
        changes=(Change("gesta.record.stream:listened", "return\n\n    async with", "raise\n\n    async with"),),
        found="stream|listener",
        tests=(
            "tests/journeys/test_promise_p01_to_p15.py::test_what_a_streamed_tool_raises_ends_no_other_stream_and_not_its_own_without_a_word",
            "tests/journeys/test_reviewed.py::test_a_listener_that_raises_hears_no_more_and_the_turn_goes_on",
        ),
    ),
    "P14": Mend(
        what="another message under a used key gets the old answer",
        changes=(
            Change("gesta.state.opening:check_same", "if opening.content is None or not known.question:", "if True:"),
        ),
        found="another message under a used key",
        tests=("tests/journeys/test_effects.py::test_a_key_stands_for_one_message",),
    ),
    "P15": Mend(
        what="an agent that calls itself has no bound of depth",
        changes=(Change("gesta.decide.move:depth_error", "opened is None or opened.depth < most", "True"),),
        found="an agent that calls itself",
        tests=("tests/journeys/test_effects.py::test_agents_call_agents_no_deeper_than_the_policy_allows",),
    ),
    "E2": Mend(
        what="a fork fires on the approval that it shares with its base",
        changes=(
            Change(
                "gesta.state.calls:OpenCall.forked",
                'if self.approval is None or self.approval.verdict == "approved":',
                "if self.approval is None:",
            ),
        ),
        found="a fork carried out",
        tests=(
            "tests/laws/test_forks_fire_nothing.py::test_a_call_that_was_approved_in_the_base_is_not_made_in_a_fork",
        ),
    ),
}
