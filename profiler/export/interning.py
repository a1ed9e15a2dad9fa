"""Strings and source lines that packets name by number: Perfetto's interned data."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import InternedData

from mgpu.sites import Site


class StringTable:
    """Numbers strings from 1 in the order in which they are first asked for; 0 stands for the empty string."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Returns the number of a string, giving it the next one if it is new."""
        return self.numbers.setdefault(text, len(self.numbers) + 1) if text else 0

    def column(self, texts: pl.Series) -> np.ndarray:
        """Returns the numbers of a column of strings: int64[n]."""
        distinct = texts.unique(maintain_order=True)
        table = {text: self.number(text) for text in distinct.to_list()}
        return texts.replace_strict(table, return_dtype=pl.Int64).to_numpy() if len(texts) else np.zeros(0, np.int64)


class Interner:
    """The tables of one packet sequence. Build all packets first, then write `to_message()` before them."""

    def __init__(self, sites: Iterable[Site]) -> None:
        self.names = StringTable()
        self.categories = StringTable()
        self.arg_names = StringTable()
        self.arg_strings = StringTable()
        self._located = [site for site in sites if site.line]
        size = 1 + max((site.id for site in self._located), default=0)
        self._site_location = np.zeros(size + 1, np.int64)
        self._site_location[[site.id for site in self._located]] = np.arange(1, len(self._located) + 1)

    def locations(self, site: np.ndarray) -> np.ndarray:
        """Returns the source location numbers of sites, 0 where the line is unknown."""
        beyond = len(self._site_location) - 1
        return self._site_location[np.where((site >= 0) & (site < beyond), site, beyond)]

    def to_message(self) -> InternedData:
        """Returns the tables as a Perfetto message."""
        data = InternedData()
        for table, field in ((self.names, "event_names"), (self.categories, "event_categories")):
            for text, number in table.numbers.items():
                getattr(data, field).add(iid=number, name=text)
        for text, number in self.arg_names.numbers.items():
            data.debug_annotation_names.add(iid=number, name=text)
        for text, number in self.arg_strings.numbers.items():
            data.debug_annotation_string_values.add(iid=number, str=text.encode())
        for number, site in enumerate(self._located, 1):
            data.source_locations.add(
                iid=number, file_name=site.file, function_name=site.function, line_number=site.line
            )
        return data
