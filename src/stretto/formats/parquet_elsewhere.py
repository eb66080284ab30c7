"""Tables of Parquet files that other programs wrote, and stretto before it wrote its own: by pyarrow."""

from __future__ import annotations

import numpy as np

from ..model.arrays import Ragged
from ..model.extras import require
from .parquet import Column


class Table:
    """As :class:`stretto.formats.parquet.Table`, of a path.

    Raises:
        ValueError, OSError: the file is damaged, or not Parquet.
        Unsupported: pyarrow is not installed.
    """

    def __init__(self, path: str) -> None:
        require("parquet", f"{path}, of another encoding than stretto's,", "pyarrow")
        import pyarrow as arrow
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(path, page_checksum_verification=True) as file:
                about = file.metadata
                groups, stored = range(about.num_row_groups), range(about.num_columns)
                self.values = sum(about.row_group(i).column(k).num_values for i in groups for k in stored)
                self.names = tuple(file.schema_arrow.names)
                self.metadata = {key.decode(): text for key, text in (file.schema_arrow.metadata or {}).items()}
        except arrow.ArrowException as error:
            raise ValueError(str(error)) from None
        self._path, self._arrow = path, arrow

    def column(self, name: str) -> Column:
        """A column, in an array that may be written to."""
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(self._path, page_checksum_verification=True) as file:
                column = file.read(columns=[name], use_threads=False).column(name).combine_chunks()
            if column.null_count:
                raise TypeError("it has nulls")
            if not hasattr(column, "offsets") or column.type == self._arrow.string():
                return np.asarray(column.to_numpy(zero_copy_only=False, writable=True))
            values = column.values.to_numpy(zero_copy_only=False, writable=True)
            offsets = column.offsets.to_numpy(zero_copy_only=False)
            return Ragged(offsets - offsets[0], values[offsets[0] : offsets[-1]])
        except self._arrow.ArrowException as error:
            raise ValueError(str(error)) from None
