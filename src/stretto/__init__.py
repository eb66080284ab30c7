"""stretto: plans for collectives between accelerators, over networks that are not uniform.

    import stretto as st

    net = st.topology("ndv2:4")
    plan = st.plan("allreduce", net, size="1GB")
    plan.verify(), plan.simulate(), plan.bound()

The names in ``__all__`` are the face of the package (:mod:`stretto.face`). They are loaded when they are first used, so
that ``import stretto`` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader

    from .bounds import Bound
    from .face import (
        Comparison,
        Front,
        Order,
        Plan,
        Topology,
        bound,
        collective,
        compare,
        compose,
        front,
        load,
        order,
        plan,
        replan,
        simulate,
        topology,
        verify,
        workload,
    )
    from .model.collective import Collective, Workload
    from .model.errors import Infeasible, InputError, PeerFailed, StrettoError, Unsupported
    from .model.timeline import Timeline
    from .verify import Verdict
else:
    Loader = object  # its module imports thirty others

__version__ = "0.1.0"

__all__ = [
    "Bound", "Collective", "Comparison", "Front", "Infeasible", "InputError", "Order", "PeerFailed", "Plan",
    "StrettoError", "Timeline", "Topology", "Unsupported", "Verdict", "Workload", "bound", "collective", "compare",
    "compose", "front", "load", "order", "plan", "replan", "simulate", "topology", "verify", "workload",
]  # fmt: skip

_FACE = dict.fromkeys(__all__, "face") | {
    "Bound": "bounds",
    "Timeline": "model.timeline",
    "Verdict": "verify",
    **dict.fromkeys(("Collective", "Workload"), "model.collective"),
    **dict.fromkeys(("Infeasible", "InputError", "PeerFailed", "StrettoError", "Unsupported"), "model.errors"),
}
"""For each name of the face the module that has it."""

MOVED = {
    **{
        name: f"model.{name}"
        for name in ("collective", "demand", "errors", "plan", "telemetry", "timeline", "topology", "workloads")
    },
    **{name: f"choose.{name}" for name in ("replan", "tuning")},
}
"""Module paths that were documented before, and where the modules are now."""


def __getattr__(name: str) -> Any:
    if name in _FACE:
        value = getattr(importlib.import_module(f"{__name__}.{_FACE[name]}"), name)
        globals()[name] = value
        return value
    if name in MOVED:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """The package as a module that keeps the names of its face.

    ``from stretto.verify import verify`` makes Python set the attribute ``verify`` of the package to the submodule.
    ``stretto.verify`` is the function of the face all the same, before and after.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _FACE and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


class _MovedModules(Loader):
    """Imports a documented old path, such as ``stretto.topology``, as the module that it names today."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        return ModuleSpec(fullname, self) if package == __name__ and name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{__name__}.{MOVED[spec.name.rpartition('.')[2]]}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back; it ran when it was created."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


sys.modules[__name__].__class__ = _Package
sys.meta_path.append(_MovedModules())
