//! Scenario -> run -> report.
