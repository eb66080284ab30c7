"""The parts of PyTorch's store that groups use."""

from __future__ import annotations

from typing import Any

from torch.distributed import PrefixStore

from ..runtime.credentials import random_secret


def own_part(store: Any, rank: int) -> Any:
    """The part of a store that no earlier group has written to: groups may follow one another on one store."""
    return PrefixStore(f"stretto/group {store.add(f'stretto/groups/{rank}', 1)}", store)


def part_again(store: Any, number: int) -> Any:
    """The part of a group's store in which its ranks meet again for the ``number``-th time."""
    return PrefixStore(f"stretto/again {number}", store)


def set_once(store: Any, key: str, value: str) -> None:
    """Put a value under a key unless a rank has done so before: all ranks read the first one."""
    if store.add(f"{key}/writers", 1) == 1:
        store.set(key, value)


def world_of(store: Any) -> str | None:
    """What all groups have in common that meet in one store, under whatever prefix; None where that cannot be said."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    try:
        return bytes(store.compare_set("stretto/world", "", random_secret().hex())).decode()
    except (RuntimeError, NotImplementedError):  # not every kind of store compares
        return None
