"""Who takes part in a measurement: what launchers and people say of it."""

from __future__ import annotations

import pytest

from stretto.measure.launch import first_host, hosts_in, launch_of
from stretto.model.errors import InputError

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_STEP_NODELIST": "gpu[07-09,12]", "SLURM_JOB_ID": "77"}


@pytest.mark.parametrize(
    ("environment", "launch"),
    [
        (TORCHRUN, ("torchrun", 1, 4, "10.0.0.1", 29501, "")),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "x"}, ("torchrun", 1, 4, "10.0.0.1", 29501, "x")),
        (OPEN_MPI, ("Open MPI's mpirun", 0, 2, "127.0.0.1", 29710, "")),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MASTER_ADDR": "h"}, ("mpirun", 1, 2, "h", 29710, "")),
        (SLURM, ("srun", 3, 4, "gpu07", 29710, "77")),
        ({**SLURM, "SLURM_STEP_NUM_TASKS": "8"}, ("srun", 3, 8, "gpu07", 29710, "77")),
    ],
)
def test_a_process_learns_who_it_is_from_its_launcher(environment, launch):
    assert launch_of(environment) == launch


def test_a_person_may_say_where_rank_0_is():
    assert launch_of(TORCHRUN, "other:4000")[3:5] == ("other", 4000)
    assert launch_of({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "a")[3:5] == ("a", 29710)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "nothing says which hosts"),
        ({"RANK": "0", "MASTER_ADDR": "a"}, "WORLD_SIZE is missing; torchrun sets it"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR is missing"),
        ({**TORCHRUN, "RANK": "4"}, "RANK must be a whole number from 0 to 3, not '4'"),
        ({**TORCHRUN, "MASTER_PORT": "http"}, "MASTER_PORT must be"),
        ({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}, "started one process"),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "does not say where rank 0 runs; set MASTER_ADDR"),
        ({"PMI_RANK": "0", "MASTER_ADDR": "a"}, "PMI_SIZE is missing"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, "SLURM_STEP_NODELIST is missing"),
    ],
)
def test_what_a_launcher_leaves_out_is_said_in_one_line(environment, words):
    with pytest.raises(InputError, match=words) as refused:
        launch_of(environment)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [
        ("gpu[07-09,12]", "gpu07"),
        ("a,b", "a"),
        ("login", "login"),
        ("r[1,3]n,x", "r1n"),
        ("n[3],m[1-2]", "n3"),
        ("r[1-2]n[01-16]", "r1n01"),
    ],
)
def test_the_first_host_of_slurms_list(nodelist, first):
    assert first_host(nodelist) == first


def test_hosts_are_names_with_addresses_where_given():
    assert hosts_in("a,b=10.0.0.2", "--hosts") == [("a", ""), ("b", "10.0.0.2")]
    assert hosts_in("# ours\na\nuser@b  # fast\n", "hosts.txt") == [("a", ""), ("user@b", "")]


@pytest.mark.parametrize(
    ("text", "words"),
    [("a", "1 host is given"), ("a,a", "'a' is given twice"), ("a,-oProxy", "no host name"), ("a,b;c", "no host"),
     ("a,=10.0.0.1", "names no host")],
)  # fmt: skip
def test_a_wrong_list_of_hosts_is_refused(text, words):
    with pytest.raises(InputError, match=f"--hosts: .*{words}"):
        hosts_in(text, "--hosts")
