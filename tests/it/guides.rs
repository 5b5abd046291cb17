//! The guides in `docs/` as an operator follows them: every block of commands is run as it is written, on a machine whose
//! paths lie in a folder of the test.

mod limits_and_cost;
mod machine;
mod operating;
mod scaling;
