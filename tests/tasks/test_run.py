"""Items on every kind of executor: all come back, whatever happens to who does them."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from deeds import (
    alive,
    begun,
    items,
    kept,
    lack,
    make_at_last,
    make_but_not_first,
    make_unless_lacking,
    pids,
    soon,
    work,
)

from igpe.core.errors import DataError, ProblemError, Unsupported
from igpe.core.status import Status
from igpe.tasks.run import AT_ONCE, Backend, run
from igpe.tasks.workers import Item, Work

EVERYWHERE = ["here", "own", "pool", "threads", "dask"]
ELSEWHERE = ["own", "pool", "dask"]


def outcomes(what, count=8, backend=Backend()):
    found = list(run(what, items(count), backend))
    assert len(found) == count
    return {int(one.key): one for one in found}


def doubled(found, but=()):
    return all(
        o.status is None and o.row == {"number": 2 * k} for k, o in found.items() if k != but
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERYWHERE)
@pytest.mark.parametrize("chunk", [1, 7])
def test_every_item_comes_back_once_and_is_made_ready_once_a_process(name, chunk, opened, tmp_path):
    with opened(name) as executor:
        found = outcomes(work(tmp_path), 50, Backend(executor, chunk=chunk))
    assert doubled(found)
    assert sorted(map(int, begun(tmp_path))) == list(range(50))
    made = (tmp_path / "made").read_text().split()
    assert len(made) == len(set(made))


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERYWHERE)
def test_what_is_stuck_is_ended_and_recorded(name, opened, tmp_path):
    with opened(name) as executor:
        found = outcomes(work(tmp_path, "hang"), 8, Backend(executor, timeout=0.5))
    assert doubled(found, but=3)
    assert found[3].status is Status.TIMED_OUT
    assert found[3].message == "It was stopped after 0.5 s."
    assert found[3].seconds >= 0.5
    assert len(pids(tmp_path, 3)) == 1
    assert soon(lambda: not alive(pids(tmp_path, 3)[0]))


@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_item_whose_process_was_killed_is_done_by_another(name, opened, tmp_path):
    with opened(name) as executor:
        found = outcomes(work(tmp_path, "die once"), 20, Backend(executor))
    assert doubled(found)
    assert begun(tmp_path).count("3") == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ELSEWHERE)
def test_an_item_that_kills_every_process_is_recorded(name, opened, tmp_path):
    with opened(name) as executor:
        found = outcomes(work(tmp_path, "die"), 8, Backend(executor, chunk=2))
    assert doubled(found, but=3)
    assert found[3].status is Status.WORKER_DIED
    assert found[3].message
    assert len(pids(tmp_path, 3)) == 4


def test_a_process_that_dies_between_items_costs_no_attempt(tmp_path):
    """The same with a pool of the user's: the children of its processes do the work."""
    with ProcessPoolExecutor(1) as pool:
        found = outcomes(work(tmp_path, "die once"), 8, Backend(pool, timeout=30))
    assert doubled(found)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_errors_are_outcomes_and_refusals_are_raised(name, opened, tmp_path):
    with opened(name) as executor:
        found = outcomes(work(tmp_path, "raise"), 8, Backend(executor))
        assert doubled(found, but=3)
        assert (found[3].status, found[3].message[:17]) == (Status.RAISED, "ZeroDivisionError")
        with pytest.raises(Unsupported, match="Nobody can"):
            outcomes(work(tmp_path, "refuse"), 8, Backend(executor))


def test_models_may_print_and_read(tmp_path):
    assert doubled(outcomes(work(tmp_path, "talk"), 8, Backend(1)))


def test_only_so_many_items_are_on_their_way(tmp_path):
    taken = []

    def given():
        for item in items(300):
            taken.append(item)
            yield item

    with ThreadPoolExecutor(2) as executor:
        for done, _ in enumerate(run(work(tmp_path), given(), Backend(executor, chunk=3))):
            assert len(taken) <= done + 1 + 3 * 2 * 4 * 2
    assert len(taken) == 300


@pytest.mark.parametrize("name", ["here", "own"])
def test_what_is_finished_is_not_done_again(name, opened, tmp_path):
    store = tmp_path / "store.db"
    with opened(name) as executor:
        backend = Backend(executor, store)
        assert doubled(outcomes(work(tmp_path), 5, backend))
        assert doubled(outcomes(work(tmp_path), 5 + AT_ONCE, backend))
        assert doubled(outcomes(work(tmp_path), 5 + 2 * AT_ONCE, backend))
        assert sorted(map(int, begun(tmp_path))) == list(range(5 + 2 * AT_ONCE))
        other = outcomes(work(tmp_path, factor=3), 5, backend)  # another series
    assert other[4].row == {"number": 12}


def test_a_time_out_counts_as_finished_until_there_is_more_time(tmp_path):
    store = tmp_path / "store.db"
    for timeout, times in ((0.2, 1), (0.2, 1), (0.1, 1), (30, 2), (30, 2), (0.2, 2)):
        found = outcomes(work(tmp_path, "hang briefly"), 5, Backend(1, store, timeout))
        assert (found[3].status is None) == (times == 2)
        assert begun(tmp_path).count("3") == times
    assert begun(tmp_path).count("1") == 1


def test_who_stops_early_keeps_what_is_finished(tmp_path):
    store, kept = tmp_path / "store.db", set()
    running = run(work(tmp_path, "hang"), items(30), Backend(2, store))
    for one in running:
        kept.add(one.key)
        if len(kept) == 10:
            break
    running.close()
    assert soon(lambda: not any(alive(p) for k in range(30) for p in pids(tmp_path, k)))
    again = {o.key for o in run(work(tmp_path), items(30), Backend(store=store))}
    assert len(again) == 30
    assert all(begun(tmp_path).count(key) == 1 for key in kept)


DRIVER = """
import sys
sys.path[:] = {path!r}
from deeds import items, work
from igpe.tasks.run import Backend, run
done = 0
try:
    for one in run(work({folder!r}, "work on"), items({count}), Backend(2, {store!r})):
        done += 1
except KeyboardInterrupt:
    pass
print(done)
"""


@contextmanager
def driver(folder, store, count=30):
    words = DRIVER.format(path=sys.path, folder=str(folder), store=str(store), count=count)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", words], stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            yield process
        finally:  # a test that fails must not wait for it
            process.kill()


@pytest.mark.slow
def test_kill_9_of_the_driver_loses_and_repeats_nothing(tmp_path):
    store = tmp_path / "runs.sqlite"
    with driver(tmp_path, store) as first:
        assert soon(lambda: len(kept(store)) >= 8, 60)
        first.kill()
        assert first.stderr.read() == ""  # at its end all children have ended
    finished = kept(store)
    assert 8 <= len(finished) < 30
    workers = {pid for key in begun(tmp_path) for pid in pids(tmp_path, key)}
    assert soon(lambda: not any(map(alive, workers))), "children outlive their parent"
    before = begun(tmp_path)
    with driver(tmp_path, store) as second:
        assert second.communicate(timeout=60)[0].split() == ["30"]
    assert sorted(begun(tmp_path)[len(before) :]) == sorted({*map(str, range(30))} - finished)
    assert len(kept(store)) == 30


def test_ctrl_c_keeps_what_is_finished_and_leaves_no_process(tmp_path):
    store = tmp_path / "runs.sqlite"
    with driver(tmp_path, store, 10_000) as process:
        assert soon(lambda: len(kept(store)) >= 8, 60)
        process.send_signal(signal.SIGINT)
        said, wrong = process.communicate(timeout=20)
    assert (process.returncode, wrong) == (0, "")
    assert 8 <= int(said) <= len(kept(store))
    assert not any(alive(pid) for key in begun(tmp_path) for pid in pids(tmp_path, key))


def test_ctrl_c_in_an_item_ends_all(tmp_path):
    running = run(work(tmp_path, "interrupt"), items(8), Backend())
    with pytest.raises(KeyboardInterrupt):
        list(running)


def test_what_cannot_travel_is_told(tmp_path):
    lock = threading.Lock()
    with pytest.raises(ProblemError, match=r"cannot be sent .*\(TypeError: .*lock.*model\(times\)"):
        list(run(Work(print, lock), items(2), Backend(1)))


class FromElsewhere:
    """Its class is nowhere to be found."""

    def __reduce__(self):
        return __import__, ("no_such_module",)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_workers_lack_is_told(name, opened):
    with (
        opened(name) as executor,
        pytest.raises(
            ProblemError, match=r"A worker could not prepare the problem .*no_such_module"
        ),
    ):
        list(run(Work(print, FromElsewhere()), items(2), Backend(executor)))


def test_a_process_that_dies_before_it_is_ready_is_no_fault_of_its_item(tmp_path):
    assert doubled(outcomes(Work(make_at_last, str(tmp_path)), 3, Backend(1)))
    assert (tmp_path / "tried").stat().st_size == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_worker_that_cannot_build_the_model_costs_no_item(name, opened, tmp_path):
    with opened(name) as executor:
        found = outcomes(Work(make_but_not_first, str(tmp_path)), 12, Backend(executor))
    assert doubled(found)


def test_where_no_worker_can_build_the_model_this_machine_does(tmp_path):
    said = []
    with ProcessPoolExecutor(1, initializer=lack) as pool:
        found = outcomes(Work(make_unless_lacking, None), 3, Backend(pool, report=said.append))
    assert doubled(found)
    assert len(said) == 1
    assert "this machine" in said[0]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["never any", "gone at once", "client closed"])
def test_a_cluster_without_workers_is_no_endless_wait(when, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("igpe.tasks.run.PATIENCE", 0.5)
    monkeypatch.setattr("igpe.tasks.run.AGAIN", 0.2)
    said, done = [], {}
    with (
        distributed.LocalCluster(
            n_workers=int(when != "never any"), threads_per_worker=1, processes=False,
            dashboard_address=":0", silence_logs=50,
        ) as workers,
        distributed.Client(workers) as client,
    ):  # fmt: skip
        backend = Backend(client.get_executor(), tmp_path / "runs.sqlite", report=said.append)
        running = run(work(tmp_path, "work on"), items(12), backend)
        try:
            for one in running:
                done[int(one.key)] = one
                if len(done) == 3:
                    {"gone at once": lambda: workers.scale(0), "client closed": client.close}.get(
                        when, lambda: None
                    )()
        except ProblemError as error:
            said.append(str(error))
    assert doubled(done)
    assert len(done) == 12 or when == "client closed"
    assert any("has had no worker" in s or "accepts no more work" in s for s in said)


def test_failures_are_done_again_and_what_is_done_is_not(tmp_path):
    store = tmp_path / "store.db"
    for times in (1, 2):
        found = outcomes(work(tmp_path, "raise"), 5, Backend(store=store))
        assert (doubled(found, but=3), found[3].status) == (True, Status.RAISED)
        assert begun(tmp_path).count("3") == times
    assert doubled(outcomes(work(tmp_path), 5, Backend(store=store)))
    assert sorted(begun(tmp_path)) == ["0", "1", "2", "3", "3", "3", "4"]


@pytest.mark.slow
def test_work_that_kills_whoever_makes_it_ready_is_told():
    with pytest.raises(ProblemError, match="10 consecutive processes died"):
        list(run(Work(os._exit, 1), items(2), Backend(1)))


def test_an_executor_that_has_ended_is_told(tmp_path):
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(ProblemError, match="accepts no more work"):
        outcomes(work(tmp_path), 2, Backend(pool))


def test_an_executor_that_never_answers_is_told(tmp_path):
    with (
        ProcessPoolExecutor(1, initializer=sys.exit) as pool,
        pytest.raises(ProblemError, match="No worker of the executor returned"),
    ):
        outcomes(work(tmp_path), 2, Backend(pool))


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (
            {"executor": "dask"},
            ProblemError,
            "`executor` is 'dask'; expected a number of processes",
        ),
        ({"executor": 0}, ProblemError, "one or more processes"),
        ({"executor": -1}, ProblemError, "`executor` is -1"),
        ({"executor": ProcessPoolExecutor}, ProblemError, "expected a number of processes"),
        ({"timeout": 0}, ProblemError, "a positive number, or None"),
        ({"timeout": "1"}, ProblemError, "a positive number, or None"),
        ({"store": "/no/such/folder/s.db"}, DataError, "cannot be used"),
        ({"store": __file__}, DataError, "cannot be used"),
        ({"store": 3}, ProblemError, "the path of a file"),
    ],
)
def test_what_makes_no_sense_is_refused(given, error, says, tmp_path):
    with pytest.raises(error, match=says):
        outcomes(work(tmp_path), 2, Backend(**given))


def test_nothing_to_do_is_done_at_once(tmp_path):
    assert list(run(work(tmp_path), iter([]), Backend(2))) == []
    only = list(run(work(tmp_path), [Item("3", 3)], Backend(2, chunk=5)))
    assert [one.row for one in only] == [{"number": 6}]
