"""Messages of several chunks: what they are made of, and their times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..model.message_form import wrong_message
from ..model.messages import messages_of
from ..model.plan import Plan
from .findings import Finding, about


def broken_message(plan: Plan) -> Finding | None:
    """The first transfer that cannot be in one message with the transfer before it."""
    wrong = wrong_message(plan)
    if wrong is None:
        return None
    k, words = wrong
    return Finding("message", words) if k is None else about(plan, "message", k, words)


def by_messages(check: Callable[[Plan], Finding | None]) -> Callable[[Plan], Finding | None]:
    """A check of times and loads, made of messages instead of transfers; a finding is about the first transfer."""

    def checked(plan: Plan) -> Finding | None:
        messages = messages_of(plan)
        if messages is None:
            return check(plan)
        finding = check(messages.merged)
        if finding is None or finding.transfer is None:
            return finding
        return replace(finding, transfer=int(messages.first[finding.transfer]))

    return checked
