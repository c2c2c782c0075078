//! The class `Report`, conversion of reports to dicts, and the words about a fill value.

use foldwire::{Report, SuspectedFill};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The report of a call. Few callers read it, so it becomes a dict when one does.
#[pyclass(frozen, name = "Report", module = "foldwire._native")]
pub(crate) struct PyReport(pub(crate) Report);

#[pymethods]
impl PyReport {
    /// Value that seems to stand for missing data, if there is one.
    #[getter]
    const fn suspected_fill(&self) -> Option<f64> {
        self.0.suspected_fill
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dict(py, &self.0)
    }
}

/// Converts a report to a dict. Times are in seconds, and `segment` is a number of values.
pub(crate) fn dict<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("schedule", report.schedule)?;
    dict.set_item("codec", report.codec.name())?;
    dict.set_item("lanes", report.lanes)?;
    dict.set_item("threads", report.threads)?;
    dict.set_item("segment", report.segment)?;
    dict.set_item("bound", report.bound)?;
    dict.set_item("worst_case", report.worst_case)?;
    dict.set_item("suspected_fill", report.suspected_fill)?;
    dict.set_item("raw_bytes", report.raw_bytes)?;
    dict.set_item("wire_bytes", report.wire_bytes)?;
    dict.set_item("ratio", report.ratio())?;
    dict.set_item("n_messages", report.n_messages)?;
    for (name, time) in [
        ("seconds", report.total),
        ("encode_seconds", report.encode),
        ("fold_seconds", report.fold),
        ("decode_seconds", report.decode),
        ("waiting_seconds", report.waiting()),
    ] {
        dict.set_item(name, time.as_secs_f64())?;
    }
    // The reason for the choice of an automatic plan.
    dict.set_item("choice", report.plan.map(|choice| choice.to_string()))?;
    Ok(dict)
}

/// Issues a warning of Python from a function that returns no errors to Python. If the warning is
/// an error there, Python prints it.
pub(crate) fn warn(message: String) {
    // Not while the interpreter ends.
    Python::try_attach(|py| {
        let pending = PyErr::take(py);
        let warned = py
            .import("foldwire._errors")
            .and_then(|errors| errors.call_method1("warn", (message,)));
        if let Err(error) = warned {
            error.write_unraisable(py, None);
        }
        if let Some(pending) = pending {
            pending.restore(py);
        }
    });
}

/// Says that a value seems to be a fill value.
#[pyfunction]
pub(crate) fn suspected_fill(fill: f64) -> String {
    SuspectedFill(fill).to_string()
}
