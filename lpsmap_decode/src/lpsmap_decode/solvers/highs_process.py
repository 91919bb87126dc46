"""The process that runs HiGHS. It shares no state with others, and can be ended at any time.

`HighsSolver` runs this file, which imports none of our packages: that would take longer than HiGHS
takes for many programs. Standard input has the folders of modules, then programs; standard output
has the reports. All are pickled. The process exits at the end of its input.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import sys
import threading
from typing import IO, Any

__all__ = ["ENDED", "FAILED", "READY", "RUNNING", "main", "model_of"]

READY, RUNNING, ENDED, FAILED = "ready", "running", "ended", "failed"
"""The first entry of a report. The others are values or None, a bound, and the number of nodes;
for a failure, the error."""


def main() -> None:
    """Answer requests until the input ends."""
    reports = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # HiGHS prints a banner
    if os.name == "posix":  # the parent process handles Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sys.path[:] = pickle.load(sys.stdin.buffer)
        import highspy  # noqa: F401 - imported before the first request

        _report(reports, READY)
        requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()
        while True:
            _solve(requests.get(), reports)
    except Exception as error:
        with contextlib.suppress(OSError):  # the parent process is gone
            _report(reports, FAILED, f"{type(error).__name__}: {error}")


def model_of(arrays: dict[str, Any]) -> Any:
    """Return a program as a HiGHS model with a row-wise matrix.

    Parameters
    ----------
    arrays
        The fields of a `Program`, of which the first `n_whole` columns are integers.
    """
    import highspy
    import numpy as np

    model, n, m = highspy.HighsLp(), len(arrays["scores"]), len(arrays["low"])
    model.num_col_, model.num_row_ = n, m
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_, model.col_lower_, model.col_upper_ = (
        arrays["scores"],
        np.zeros(n),
        arrays["upper"],
    )
    model.row_lower_, model.row_upper_ = arrays["low"], arrays["high"]
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    n_entries = np.bincount(arrays["row"], minlength=m)
    model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(n_entries)])
    model.a_matrix_.index_ = arrays["column"]
    model.a_matrix_.value_ = arrays["coefficient"]
    kinds, n_whole = highspy.HighsVarType, arrays["n_whole"]
    model.integrality_ = [kinds.kInteger] * n_whole + [kinds.kContinuous] * (n - n_whole)
    return model


def _read(source: IO[bytes], requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Queue requests; at the end of the input, exit, even while HiGHS runs."""
    try:
        while True:
            requests.put(pickle.load(source))
    except BaseException:
        os._exit(0)


def _report(reports: IO[bytes], kind: str, *content: Any) -> None:
    pickle.dump((kind, *content), reports)
    reports.flush()


def _solve(request: dict[str, Any], reports: IO[bytes]) -> None:
    """Solve a program; report better assignments and bounds, then the end."""
    import highspy
    import numpy as np

    highs, last = highspy.Highs(), np.inf
    highs.silent()
    for name, value in request["options"].items():
        highs.setOptionValue(name, value)
    highs.passModel(model_of(request))
    start = request["start"]
    if start is not None:
        highs.setSolution(len(start), np.arange(len(start), dtype=np.int32), start)

    def improved(event: Any) -> None:
        out = event.data_out
        values = np.array(out.mip_solution)
        _report(reports, RUNNING, values, out.mip_dual_bound, out.mip_node_count)

    def bounded(event: Any) -> None:
        nonlocal last
        out = event.data_out
        if out.mip_dual_bound < last:
            last = out.mip_dual_bound
            _report(reports, RUNNING, None, last, out.mip_node_count)

    highs.cbMipImprovingSolution += improved
    highs.cbMipInterrupt += bounded
    highs.run()
    status, known = highs.getModelStatus(), highspy.HighsModelStatus
    info, values, bound = highs.getInfo(), None, np.inf
    # bounded, since all columns are
    if status in (known.kInfeasible, known.kUnboundedOrInfeasible):
        bound = -np.inf
    elif status in (known.kOptimal, known.kTimeLimit):
        bound = info.mip_dual_bound if np.isfinite(info.mip_dual_bound) else np.inf
        if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
            values = np.array(highs.getSolution().col_value)
    _report(reports, ENDED, values, bound, info.mip_node_count)


if __name__ == "__main__":
    main()
