//! Tests of all pages: texts, templates, and the checks of forms.

mod forms;
mod templates;
mod texts;
