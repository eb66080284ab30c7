"""The program of one node of a plan by symmetry is the one that the expanded plan gives it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from stretto.lower import Program, lower, lower_for
from symmetric_plans import examples

EXAMPLES = examples(0) | {f"{name}, again": plan for name, plan in examples(1).items()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_as_in_the_expanded_plan(name):
    plan = EXAMPLES[name]
    programs = lower(plan.expand())
    for node, program in programs.items():
        ours = lower_for(plan, node)
        for f in fields(Program):
            if f.name != "plan":
                assert getattr(ours, f.name) == getattr(program, f.name), (node, f.name)
        for k in program.sends:
            assert ours.describe(k) == program.describe(k)


def test_a_plain_plan_and_a_node_that_takes_no_part():
    plan = EXAMPLES["allgather on rails"].expand()
    assert lower_for(plan, 1).sends == lower(plan)[1].sends
    switch = plan.topology.node_count - 1
    for each in (plan, EXAMPLES["allgather on rails"]):
        with pytest.raises(KeyError):
            lower_for(each, switch)
