"""Questions about a Trace, a file each. Every one is a pure function from a Trace to a frozen report of tables."""

from profiler.analysis.barrier_waits import BarrierWaitReport as BarrierWaitReport
from profiler.analysis.barrier_waits import find_barrier_waits as find_barrier_waits
from profiler.analysis.blame import BlameStep as BlameStep
from profiler.analysis.blame import blame_chain as blame_chain
from profiler.analysis.bubbles import BubbleReport as BubbleReport
from profiler.analysis.bubbles import find_bubbles as find_bubbles
from profiler.analysis.categories import CategoryReport as CategoryReport
from profiler.analysis.categories import time_by_category as time_by_category
from profiler.analysis.causes import Cause as Cause
from profiler.analysis.causes import Detail as Detail
from profiler.analysis.causes import Reading as Reading
from profiler.analysis.causes import recommended_reading as recommended_reading
from profiler.analysis.steady_state import SteadyStateReport as SteadyStateReport
from profiler.analysis.steady_state import steady_state as steady_state
from profiler.analysis.utilisation import UtilisationReport as UtilisationReport
from profiler.analysis.utilisation import tensor_core_utilisation as tensor_core_utilisation
from profiler.analysis.window import Window as Window
from profiler.analysis.window import known_window as known_window
