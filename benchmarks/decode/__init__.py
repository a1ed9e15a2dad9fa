"""How fast captures are read, analysed and exported, and the memory that it takes."""

from benchmarks.decode.captures import repeat_capture as repeat_capture
