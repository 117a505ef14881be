import pytest

INI = """
[pytest]
addopts = -p tests.workers
asyncio_default_fixture_loop_scope = function
"""
MANY = """
    import os, pathlib, pytest

    @pytest.mark.parametrize("number", range(40))
    def test_each(number):
        with open({log!r}, "a") as log:
            log.write(f"{{number}} {{os.getpid()}} {{__name__}}\\n")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini(INI)
    return pytester


def test_every_test_is_run_once_and_more_than_one_process_runs_them(project, tmp_path):
    log = tmp_path / "log"
    project.makepyfile(test_one=MANY.format(log=str(log)))
    project.runpytest_inprocess("--workers", "3").assert_outcomes(passed=40)
    numbers, processes, _ = zip(*map(str.split, log.read_text().splitlines()), strict=True)
    assert sorted(map(int, numbers)) == list(range(40))
    assert len(set(processes)) > 1


def test_a_file_is_not_split_where_files_are_to_stay_whole(project, tmp_path):
    log = tmp_path / "log"
    names = ("test_one", "test_two", "test_three")
    project.makepyfile(**dict.fromkeys(names, MANY.format(log=str(log))))
    project.runpytest_inprocess("--workers", "2", "--whole-files").assert_outcomes(passed=120)
    ran = {tuple(line.split()[1:]) for line in log.read_text().splitlines()}
    assert sorted(name for _, name in ran) == sorted(names)


def test_a_failure_is_told_with_what_its_test_printed_and_no_other(project):
    project.makepyfile(
        test_it="""
        import os, pytest, warnings

        @pytest.mark.parametrize("number", range(6))
        def test_each(number):
            os.system(f"echo printed by {number}")
            warnings.warn(f"odd {number}")
            assert number != 4
        """
    )
    result = project.runpytest_inprocess("--workers", "2")
    result.assert_outcomes(passed=5, failed=1, warnings=6)
    result.stdout.fnmatch_lines(["*test_each?4?*", "*printed by 4*", "FAILED test_it.py::test_each?4?*"])
    result.stdout.no_fnmatch_line("*printed by 3*")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_worker_that_dies_is_a_failure_of_the_test_it_ran(project):
    project.makepyfile(
        test_it="""
        import os, pytest

        @pytest.mark.parametrize("number", range(6))
        def test_each(number):
            if number == 3:
                os._exit(0)
        """
    )
    result = project.runpytest_inprocess("--workers", "2")
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["*test_each?3?*", "*ended with exit code 0 in this test*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_what_a_session_has_is_ended_in_each_worker(project, tmp_path):
    log = tmp_path / "log"
    project.makepyfile(
        test_it=f"""
        import pytest

        @pytest.fixture(scope="session")
        def held(worker, tmp_path_factory):
            folder = tmp_path_factory.mktemp("held")
            yield
            with open({str(log)!r}, "a") as log:
                log.write(f"{{worker}} {{folder}}\\n")

        @pytest.mark.parametrize("number", range(12))
        def test_each(held, number):
            pass
        """
    )
    project.runpytest_inprocess("--workers", "3").assert_outcomes(passed=12)
    ended = [line.split() for line in log.read_text().splitlines()]
    assert len({worker for worker, _ in ended}) == len({folder for _, folder in ended}) == len(ended) > 0


def test_the_first_failure_ends_all_workers_with_their_fixtures_where_that_is_asked_for(project, tmp_path):
    log = tmp_path / "log"
    project.makepyfile(
        test_it=f"""
        import pathlib, pytest, time

        started = pathlib.Path({str(log)!r} + ".started")

        @pytest.fixture(scope="session")
        def held():
            yield
            with open({str(log)!r}, "a") as log:
                log.write("ended\\n")

        def test_fails():
            while not started.exists():
                time.sleep(0.01)
            assert False

        @pytest.mark.parametrize("number", range(40))
        def test_each(held, number):
            started.touch()
            time.sleep(60)
        """
    )
    result = project.runpytest_inprocess("--workers", "2", "-x")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*stopping after 1 failures*"])
    # The worker that failed may have begun the next test meanwhile, with a fixture of its own.
    assert set(log.read_text().split()) == {"ended"}
