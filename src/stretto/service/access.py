"""Who may do what: bearer tokens with roles.

    read        GET
    job         and put and delete jobs, and report telemetry
    operator    and put and delete networks, and read the audit log

A token may be bound to jobs: it then writes these alone, and reports of links at their ranks. It may be bound to nodes,
too: then all ranks of these jobs must be among them, and what it reports is of links at them.

Only SHA-256 of a token is kept. Tokens that :func:`new_token` makes have 256 random bits, so a plain digest is enough.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..model.errors import InputError, nearest
from ..topologies.values import read_text

LOG = logging.getLogger("stretto.service")

READ, JOB, OPERATOR = "read", "job", "operator"
ROLES = (READ, JOB, OPERATOR)
"""From the least to the most: each may do what those before it may."""

LINE = re.compile(r"(?P<role>\S+)\s+(?P<name>\S+)\s+(?P<digest>[0-9a-f]{64})(\s+(?P<jobs>\S+)(\s+(?P<nodes>\S+))?)?")
FORM = (
    f"must be ROLE NAME SHA256, with a role of {', '.join(ROLES)}, and for a role of {JOB} the names of jobs after it, "
    "and then of nodes"
)
JOBS = re.compile(r"[A-Za-z0-9._*?-]+(,[A-Za-z0-9._*?-]+)*")
"""Names of jobs, separated by commas, with ``*`` for any signs and ``?`` for one."""

NODES = re.compile(r"[^\s,:]+(,[^\s,:]+)*")
"""Names of nodes, written in the same way."""

SHORTEST = 16
"""Characters of a token at least."""


@dataclass(frozen=True)
class Caller:
    """Who asks: a name for the audit log, and a role.

    Attributes:
        jobs: the names of the jobs that a caller with the role ``job`` speaks for (:data:`JOBS`); empty for all.
        nodes: the names of the nodes at which it does (:data:`NODES`); empty for all.
    """

    name: str
    role: str
    jobs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    def may(self, role: str) -> bool:
        """Whether the caller has that role, or more."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def speaks_for(self, job: str) -> bool:
        """Whether the caller may write that job."""
        return not self.jobs or any(fnmatchcase(job, name) for name in self.jobs)

    def speaks_at(self, node: str) -> bool:
        """Whether the caller's jobs may have a rank at that node, and what is said of it may be the caller's."""
        return not self.nodes or any(fnmatchcase(node, name) for name in self.nodes)


ANYBODY = Caller("anybody", OPERATOR)
"""Who asks where there are no tokens."""


class Tokens:
    """The tokens that are known.

    Args:
        token: one operator's token; None for none.
        file: with a line ``ROLE NAME SHA256 [JOBS [NODES]]`` for each token; it is read again when it changes.
    Raises:
        InputError: the file cannot be read, or a line is wrong; names it.
    """

    def __init__(self, token: str | None = None, file: str | None = None) -> None:
        if token is not None and len(token) < SHORTEST:
            raise InputError(f"must have at least {SHORTEST} characters", "token")
        self._single = None if token is None else _digest(token)
        self._file, self._stamp = file, (0, 0)
        self._callers: dict[str, Caller] = {}
        if file is not None:
            self._read(file)

    @property
    def needed(self) -> bool:
        """Whether callers need a token."""
        return self._single is not None or self._file is not None

    def caller(self, authorization: str | None) -> Caller | None:
        """Who sends that header; None if its token is not known."""
        if not self.needed:
            return ANYBODY
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return None
        digest = _digest(token.strip())
        if self._single is not None and hmac.compare_digest(digest, self._single):
            return Caller("operator", OPERATOR)
        if self._file is not None:
            self._read(self._file)
        return self._callers.get(digest)

    def _read(self, path: str) -> None:
        """Read the file, if it has changed; one that cannot be read any more, or is wrong, changes nothing."""
        first = self._stamp == (0, 0)
        try:
            status = os.stat(path)
        except OSError as error:
            if first:
                raise InputError(f"cannot be read: {error.strerror}", path) from None
            return
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == self._stamp:
            return
        try:
            self._callers = _callers(path)
        except InputError as error:
            if first:
                raise
            LOG.warning("tokens: %s; those that were known before count on", " ".join(str(error).split()))
        self._stamp = stamp


def new_token(path: str, role: str, name: str, jobs: str = "", nodes: str = "") -> str:
    """Make a token, and add its digest to a file: the token, which is nowhere else.

    Args:
        jobs: that it speaks for (:data:`JOBS`); "" for all.
        nodes: at which it does (:data:`NODES`); "" for all.
    """
    if role not in ROLES:
        raise InputError(f"there is no role {role!r}; {nearest(role, ROLES)}", "role")
    if not re.fullmatch(r"[\x21-\x7e]{1,100}", name):
        raise InputError("must be 1 to 100 printable signs without spaces", "name")
    if jobs and (role != JOB or not JOBS.fullmatch(jobs)):
        raise InputError(f"a token of the role {JOB} may be bound to names such as train-*,eval", "jobs")
    if nodes and (role != JOB or not NODES.fullmatch(nodes)):
        raise InputError(f"a token of the role {JOB} may be bound to nodes such as s0.*,gpu7", "nodes")
    token = secrets.token_urlsafe(32)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8") as file:
            file.write(f"{role} {name} {_digest(token)} {jobs or (nodes and '*')} {nodes}".rstrip() + "\n")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path) from None
    return token


def _callers(path: str) -> dict[str, Caller]:
    found = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        said = LINE.fullmatch(line.strip())
        jobs, nodes = ("", "") if said is None else (said["jobs"] or "", said["nodes"] or "")
        if said is None or said["role"] not in ROLES or (jobs and (said["role"] != JOB or not JOBS.fullmatch(jobs))):
            raise InputError(FORM, f"{path}, line {number}")
        bound = (tuple(filter(None, names.split(","))) for names in (jobs, nodes))
        found[said["digest"]] = Caller(said["name"], said["role"], *bound)
    return found


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
