//! Checks of every page: its texts, its templates, and the forms that it accepts.

mod forms;
mod templates;
mod texts;
