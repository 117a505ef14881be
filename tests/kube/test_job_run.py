"""Jobs that several come to one after another: whose Job it is that is there, and whether it is whole."""

from hookline.kube.jobs import Task, end, job_of, secret_of, started
from hookline.kube.objects import JOB, SECRET
from tests.kube.memory_cluster import PretendCluster


def task(mark: str, **more) -> Task:
    return Task(
        name="job", namespace="ns", image="i", args=("attempt",), component="attempt", mark=mark, **more
    )


async def test_a_job_that_is_there_is_taken_as_it_is():
    cluster = PretendCluster()
    first, made = await started(cluster, task("a", files={"issue.json": "one"}))
    second, again = await started(cluster, task("b", files={"issue.json": "two"}))
    assert (made, again) == (True, False)
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert [each["metadata"]["name"] for each in cluster.all(SECRET)] == ["job-given-a"]


async def test_a_job_without_its_secret_never_ran_and_is_made_anew():
    cluster = PretendCluster()
    left = await cluster.create(job_of(task("a", files={"issue.json": "one"})))
    job, made = await started(cluster, task("b", files={"issue.json": "two"}))
    assert made
    assert job["metadata"]["uid"] != left["metadata"]["uid"]
    given = {each["metadata"]["name"]: each["data"] for each in cluster.all(SECRET)}
    # The first, with which its pod could not start, goes with its Job.
    assert (list(given["job-given-b"]), given.get("job-given-a", {})) == (["file.0"], {})


async def test_what_an_earlier_job_of_the_name_was_given_is_not_given_to_the_next():
    cluster = PretendCluster()
    before = task("a", files={"issue.json": "old"})
    gone = await cluster.create(job_of(before))
    await cluster.create(secret_of(before, gone))
    await end(cluster, gone)
    # The cluster removes what belonged to a Job a moment after it.
    job, made = await started(cluster, task("b", files={"issue.json": "new"}))
    [given] = [
        each["secret"]["secretName"]
        for each in job["spec"]["template"]["spec"]["volumes"]
        if each["name"] == "given"
    ]
    assert (made, given) == (True, "job-given-b")
    assert await cluster.get(SECRET, given, "ns") is not None
    assert len(cluster.all(JOB)) == 1
