"""A small gNMI target: a server of the four calls that the tests need, with the protobufs that pygnmi brings.

Where gRPC or pygnmi is not installed, a test that asks for it is skipped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

grpc = pytest.importorskip("grpc", reason="needs gRPC, which the extra stretto[gnmi] brings")
pytest.importorskip("pygnmi", reason="needs pygnmi, the extra stretto[gnmi]")

from pygnmi.create_gnmi_path import gnmi_path_degenerator, gnmi_path_generator  # noqa: E402
from pygnmi.spec.v080 import gnmi_pb2 as pb  # noqa: E402
from pygnmi.spec.v080 import gnmi_pb2_grpc  # noqa: E402


class Said(NamedTuple):
    """A value at a path, at a moment by the target's clock in nanoseconds. A number is sent as one, else JSON."""

    path: str
    value: Any
    at_ns: int = 0


Answer = Callable[[str], Sequence[Said]]
Change = Callable[[list[str], list[tuple[str, Any]]], None]


class Refused(Exception):
    """The target refuses a call, with a text."""


class GnmiTarget(gnmi_pb2_grpc.gNMIServicer):
    """A target on a free port of this machine.

    Args:
        answer: what is at a path; KeyError for nothing.
        change: deletes paths and updates others.
        credentials: of gRPC's server; without TLS by default.

    Attributes:
        held: while it is not set, Get does not answer.
        users: the names that callers gave.
    """

    def __init__(self, answer: Answer, change: Change | None = None, credentials: Any = None, port: int = 0) -> None:
        self.answer, self.change = answer, change
        self.held = threading.Event()
        self.held.set()
        self.users: list[str] = []
        self.server = grpc.server(ThreadPoolExecutor(max_workers=4))
        gnmi_pb2_grpc.add_gNMIServicer_to_server(self, self.server)
        address = f"127.0.0.1:{port}"
        if credentials is None:
            self.port = self.server.add_insecure_port(address)
        else:
            self.port = self.server.add_secure_port(address, credentials)
        self.server.start()

    def __enter__(self) -> GnmiTarget:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.set()
        self.server.stop(grace=None).wait()

    def Capabilities(self, request, context):  # noqa: N802
        return pb.CapabilityResponse(supported_encodings=[pb.JSON, pb.JSON_IETF], gNMI_version="0.8.0")

    def Get(self, request, context):  # noqa: N802
        self.users += [value for name, value in context.invocation_metadata() if name == "username"]
        self.held.wait()
        notifications = []
        for path in request.path:
            try:
                said = self.answer(text_of(path))
            except KeyError:
                context.abort(grpc.StatusCode.NOT_FOUND, f"there is nothing at {text_of(path)}")
            for at_ns in sorted({s.at_ns for s in said}):
                updates = [pb.Update(path=path_of(s.path), val=_typed(s.value)) for s in said if s.at_ns == at_ns]
                notifications.append(pb.Notification(timestamp=at_ns, update=updates))
        return pb.GetResponse(notification=notifications)

    def Set(self, request, context):  # noqa: N802
        deletes = [text_of(path) for path in request.delete]
        updates = [(text_of(u.path), json.loads(u.val.json_ietf_val)) for u in request.update]
        try:
            self.change(deletes, updates)
        except Refused as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.SetResponse(timestamp=1)


def text_of(path: Any) -> str:
    """A path as text: ``origin:/a/b[key=value]``."""
    return (f"{path.origin}:" if path.origin else "") + "/" + (gnmi_path_degenerator(path) or "")


def path_of(text: str) -> Any:
    return gnmi_path_generator(text)


def _typed(value: Any) -> Any:
    if isinstance(value, int):
        return pb.TypedValue(uint_val=value)
    return pb.TypedValue(json_ietf_val=json.dumps(value).encode())
