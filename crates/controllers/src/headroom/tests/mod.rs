//! Tests of the decisions, without any I/O.
