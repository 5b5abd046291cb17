//! What holds for every page: the texts, the templates, and which forms are believed.

mod forms;
mod templates;
mod texts;
