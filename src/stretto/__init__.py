"""stretto: plans for collectives between accelerators, over networks that are not uniform."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__version__ = "0.1.0"

MOVED = {
    **{
        name: f"model.{name}"
        for name in ("collective", "demand", "errors", "plan", "telemetry", "timeline", "topology", "workloads")
    },
    **{name: f"choose.{name}" for name in ("replan", "tuning")},
}
"""Module paths that were documented before, and where the modules are now."""


class _MovedModules(MetaPathFinder, Loader):
    """Imports a documented old path, such as ``stretto.topology``, as the module that it names today."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        return ModuleSpec(fullname, self) if package == __name__ and name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(f"{__name__}.{MOVED[spec.name.rpartition('.')[2]]}")

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do: the module ran when it was created."""


sys.meta_path.append(_MovedModules())
