"""What a job comes to whose agent does not trust it, or does not let it in."""

from pathlib import Path

import pytest

from helpers.logs.gap_jobs import GapJob
from helpers.servers.agents import serving
from helpers.servers.authority import Authority

N1, N2, N3 = "n1", "n2", "n3"


@pytest.fixture
def job(tmp_path: Path) -> GapJob:
    """Return a job at ONE with two local nodes, and one that has an agent."""
    made = GapJob(tmp_path, consistency="ONE")
    made.log(1, range(3))
    return made


def test_who_is_not_trusted_ends_with_what_is_missing(
    job: GapJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All other logs are read, then the run fails with the agent's name: it does not have one."""
    authority, stranger = (Authority(tmp_path, name) for name in ("authority", "stranger"))
    own, key = map(str, authority.issue("agent"))
    with serving(tmp_path / N2, tls_certificate=own, tls_key=key) as served:
        nodes = {N1: N1, N2: {"url": served.url}, N3: N3}
        job.change(
            nodes=nodes, agent_ca=str(stranger.file), agent_token=f"${{file:{tmp_path}/token}}"
        )
        (tmp_path / "token").write_text("shown to agents only")

        assert 3 == job.run()
        assert f"error [agent_untrusted]: {served.url}: SSLCert" in capsys.readouterr().err
        assert 3 == job.books()["mutations.agreed"]
        assert 0 == job.books()[f"entries.{N2}.read"]
        job.change(agent_ca=str(authority.file))
        assert 0 == job.run()
        assert 3 == job.books()[f"entries.{N2}.read"]


def test_who_shows_a_wrong_token_is_reported(
    job: GapJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An agent that refuses the token is an error of the environment, before anything is read."""
    with serving(tmp_path / N2) as served:
        nodes = {N1: N1, N2: {"url": served.url}, N3: N3}
        job.change(nodes=nodes, agent_token=f"${{file:{tmp_path}/token}}")
        (tmp_path / "token").write_text("another one")

        assert 3 == job.run()
        assert f"error [agent_refused]: {served.url}: " in capsys.readouterr().err


def test_a_log_that_cannot_be_reached_is_reported_at_the_end(
    job: GapJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other logs are read and delivered, but not all there is was taken."""
    with serving(tmp_path / N2) as served:
        url = served.url
    job.change(nodes={N1: N1, N2: {"url": url}, N3: N3})

    assert 1 == job.run()
    assert f"error [agent_unavailable]: {url}: " in capsys.readouterr().err
    assert 3 == job.books()["mutations.agreed"]
    job.change(absent=[N2])
    assert 0 == job.run()
