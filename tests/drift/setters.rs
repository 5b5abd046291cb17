//! Every field of a request has a setter in the SDK and an option of the command line, or a reason to have none.

use std::collections::BTreeSet;

use crate::tables::{Field, IMAGE_EDIT_FIELDS, IMAGE_GENERATION_FIELDS, IMAGE_TOOL_FIELDS};
use crate::{assert_mentions, assert_no_difference, root};

/// The setter of a field, and its argument of the command line.
struct FieldAccess {
    field: &'static str,
    setter: Result<&'static str, NoAccess>,
    argument: Result<&'static str, NoAccess>,
}

/// The reason why a field has no setter or no argument. `set` and `--set` send each of them nevertheless.
#[derive(Clone, Copy)]
enum NoAccess {
    /// The choice of the call, `generate` or `generate_stream`, or of the item, `ImageTool`.
    ByCall,
    /// The only value that the document allows is the default.
    OnlyDefault,
    /// The models of the document refuse every value.
    AlwaysRefused,
    /// Masks belong to edits, whose request has them.
    OfEdits,
}

const fn same(name: &'static str) -> FieldAccess {
    FieldAccess { field: name, setter: Ok(name), argument: Ok(name) }
}

const fn none(field: &'static str, reason: NoAccess) -> FieldAccess {
    FieldAccess { field, setter: Err(reason), argument: Err(reason) }
}

const IMAGE_REQUESTS: [FieldAccess; 17] = [
    same("background"),
    same("images"),
    none("input_fidelity", NoAccess::AlwaysRefused),
    same("mask"),
    same("model"),
    same("moderation"),
    FieldAccess { field: "n", setter: Ok("count"), argument: Ok("count") },
    FieldAccess { field: "output_compression", setter: Ok("format"), argument: Ok("compression") },
    FieldAccess { field: "output_format", setter: Ok("format"), argument: Ok("format") },
    FieldAccess { field: "partial_images", setter: Ok("partial_images"), argument: Ok("partials") },
    FieldAccess { field: "prompt", setter: Ok("new"), argument: Ok("prompt") },
    same("quality"),
    none("response_format", NoAccess::OnlyDefault),
    same("safety_identifier"),
    same("size"),
    FieldAccess { field: "stream", setter: Err(NoAccess::ByCall), argument: Ok("stream") },
    same("user"),
];

/// The command line makes no responses, so it has no arguments for the tool.
const IMAGE_TOOL: [(&str, Result<&str, NoAccess>); 12] = [
    ("action", Ok("action")),
    ("background", Ok("background")),
    ("input_fidelity", Err(NoAccess::AlwaysRefused)),
    ("input_image_mask", Err(NoAccess::OfEdits)),
    ("model", Ok("model")),
    ("moderation", Ok("moderation")),
    ("output_compression", Ok("format")),
    ("output_format", Ok("format")),
    ("partial_images", Ok("partial_images")),
    ("quality", Ok("quality")),
    ("size", Ok("size")),
    ("type", Err(NoAccess::ByCall)),
];

fn read(paths: &[&str]) -> String {
    paths.iter().map(|path| std::fs::read_to_string(root().join(path)).expect("the source is there")).collect()
}

fn names(fields: &[&[Field]]) -> BTreeSet<&'static str> {
    fields.iter().flat_map(|fields| fields.iter()).map(|field| field.name).collect()
}

/// One line for each field without a row, for each row without a field, and for each name that the source lacks.
fn differences(fields: &BTreeSet<&str>, setters: &str, arguments: &str) -> Vec<String> {
    let listed: BTreeSet<&str> = IMAGE_REQUESTS.iter().map(|access| access.field).collect();
    let mut lines: Vec<String> = fields.symmetric_difference(&listed).map(|field| format!("{field}: no row")).collect();
    for FieldAccess { field, setter, argument } in IMAGE_REQUESTS {
        if setter.is_ok_and(|setter| !has_setter(setters, setter)) {
            lines.push(format!("{field}: no setter"));
        }
        if argument.is_ok_and(|argument| !arguments.contains(&format!("\n    {argument}: "))) {
            lines.push(format!("{field}: no argument"));
        }
    }
    lines
}

fn tool_differences(fields: &BTreeSet<&str>, setters: &str) -> Vec<String> {
    let listed: BTreeSet<&str> = IMAGE_TOOL.iter().map(|(field, _)| *field).collect();
    let mut lines: Vec<String> = fields.symmetric_difference(&listed).map(|field| format!("{field}: no row")).collect();
    let missing = IMAGE_TOOL.iter().filter(|(_, setter)| setter.is_ok_and(|setter| !has_setter(setters, setter)));
    lines.extend(missing.map(|(field, _)| format!("{field}: no setter")));
    lines
}

fn has_setter(source: &str, name: &str) -> bool {
    source.contains(&format!("pub fn {name}("))
}

fn image_request_sources() -> (String, String) {
    let setters = read(&["src/client/request.rs", "src/client/request/options.rs", "src/client/request/edit.rs"]);
    (setters, read(&["src/cli/image_command.rs", "src/cli/edit.rs"]))
}

#[test]
fn every_field_has_a_setter_and_an_argument() {
    let (setters, arguments) = image_request_sources();
    assert_no_difference(&differences(&names(&[IMAGE_GENERATION_FIELDS, IMAGE_EDIT_FIELDS]), &setters, &arguments));
    assert_no_difference(&tool_differences(&names(&[IMAGE_TOOL_FIELDS]), &read(&["src/client/responses/tool.rs"])));
}

#[test]
fn a_field_without_setter_or_argument_is_found() {
    let (setters, arguments) = image_request_sources();
    let mut fields = names(&[IMAGE_GENERATION_FIELDS, IMAGE_EDIT_FIELDS]);
    let without = arguments.replace("    background: ", "    backdrop: ");
    assert_mentions(&differences(&fields, &setters, &without), "background: no argument");
    let without = setters.replace("fn safety_identifier(", "fn identifier(");
    assert_mentions(&differences(&fields, &without, &arguments), "safety_identifier: no setter");
    fields.insert("seed");
    assert_mentions(&differences(&fields, &setters, &arguments), "seed: no row");
    let tool = read(&["src/client/responses/tool.rs"]).replace("fn action(", "fn act(");
    assert_mentions(&tool_differences(&names(&[IMAGE_TOOL_FIELDS]), &tool), "action: no setter");
}
