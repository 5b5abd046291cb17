//! Checks one tool, wherever the request declares it. An image tool is checked by the rules for image requests. Of every
//! other tool, only the type is checked.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::body_edits::BodyEdit;
use super::body_members::{BodyMember, JsonType, KnownMembers, ValueSpan};
use super::mask;
use super::tool_summary::{ImageTool, ToolSummary};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::dialects::{self, ToolChanges};
use crate::gateway::rules::{ImageModels, fields, image};
use crate::gateway::spool::SpooledBytes;
use crate::image::SizeRequest;
use crate::tables::IMAGE_TOOL_FIELDS;

const IMAGE_TOOL_TYPE: &str = "image_generation";
const MASK: &str = "input_image_mask";
/// Types of tools that the caller runs itself: the upstream only requests their calls.
const CLIENT_TOOL_TYPES: [&str; 3] = ["function", "custom", "namespace"];
/// The type of a `tool_choice` that lists tools and is none itself.
const CHOICE_TYPE: &str = "allowed_tools";
/// The separators between the namespaces and the name of a tool.
const NAMESPACE_SEPARATORS: [&str; 4] = [".", "__", "/", ":"];
/// The words by which an agent's own tool for images is recognized (our choice): the name of the tool, or of one of its
/// namespaces, has a word of each list. It shall rather be found too often: then the agent gets no second tool.
const IMAGE_WORDS: [&str; 4] = ["image", "img", "picture", "photo"];
const MAKING_WORDS: [&str; 8] = ["gen", "creat", "make", "draw", "paint", "edit", "textto", "text2"];

/// The parts of a request against which its tools are checked.
pub(super) struct ToolRules<'a> {
    pub(super) models: &'a ImageModels,
    pub(super) body: &'a SpooledBytes,
    pub(super) changes: &'a mut ToolChanges,
}

/// A tool of a request.
#[derive(Debug)]
pub(super) struct DeclaredTool<'a> {
    /// The path of the tool in the request.
    pub(super) path: &'a str,
    /// Its members that an image tool has.
    pub(super) known: &'a KnownMembers,
    /// True for a `tool_choice` and the tools in it.
    pub(super) is_choice: bool,
}

/// The result of the check of a tool that breaks no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolVerdict {
    /// The tool is in the summary.
    Declared,
    /// The choice of a tool names the image tool and has no options: it refers to one that is declared elsewhere.
    ImageReference,
}

/// Returns the name of the member of an image tool with this key.
pub(super) fn member(key: &str, changes: &ToolChanges) -> Option<&'static str> {
    let listed = IMAGE_TOOL_FIELDS.iter().map(|field| field.name).find(|name| *name == key);
    // Only in a dialect a member of an image tool.
    listed.or_else(|| (key == dialects::STYLE && changes.removes_style()).then_some(dialects::STYLE))
}

/// True if the name of a tool says that it is an agent's own tool for images.
pub(super) fn names_image_tool(name: &str) -> bool {
    let mut parts = vec![name];
    for separator in NAMESPACE_SEPARATORS {
        parts = parts.into_iter().flat_map(|part| part.split(separator)).collect();
    }
    parts.into_iter().any(|part| {
        let part: String = part.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
        let has_one_of = |words: &[&str]| words.iter().any(|word| part.contains(word));
        has_one_of(&IMAGE_WORDS) && has_one_of(&MAKING_WORDS)
    })
}

/// Returns the type of a tool.
///
/// # Errors
///
/// Rejects a value that is no object with a type.
pub(super) fn tool_type(path: &str, known: &KnownMembers) -> Result<String, Rejection> {
    if known.span.json_type != JsonType::Object {
        return Err(fields::wrong_type(path, "an object", known.span.json_type.as_str()));
    }
    let name = format!("{path}.type");
    let Some(kind) = known.get("type") else { return Err(fields::missing_parameter(name)) };
    if kind.json_type() != JsonType::Text {
        return Err(fields::wrong_type(&name, "a string", kind.json_type().as_str()));
    }
    kind.parse().ok_or_else(|| too_long(&name))
}

/// True if a choice of tools lets the text model use an image tool.
pub(super) fn allows_image_tool(choice: &Value) -> bool {
    let is_image = |tool: &Value| tool.get("type").is_some_and(|kind| kind == IMAGE_TOOL_TYPE);
    let listed = |choice: &Value| choice.get("tools").and_then(Value::as_array).map(|tools| tools.iter().any(is_image));
    match choice {
        Value::Object(_) => {
            is_image(choice) || listed(choice).or_else(|| choice.get(CHOICE_TYPE).and_then(listed)).unwrap_or_default()
        }
        choice => choice != "none",
    }
}

/// Checks a tool of this type, and adds it to the summary.
pub(super) fn check_tool(
    rules: &mut ToolRules<'_>,
    tool: &DeclaredTool<'_>,
    kind: &str,
    tools: &mut ToolSummary,
) -> Result<ToolVerdict, Error> {
    if !(CLIENT_TOOL_TYPES.contains(&kind) || tool.is_choice && kind == CHOICE_TYPE) {
        tools.record_hosted_tool(&format!("{}.type", tool.path), kind);
    }
    if kind != IMAGE_TOOL_TYPE {
        return Ok(ToolVerdict::Declared);
    }
    if tool.is_choice && tool.known.first_unknown().is_none() && tool.known.iter().count() == 1 {
        return Ok(ToolVerdict::ImageReference);
    }
    let (image_tool, edit) = check_image_tool(rules, &format!("{}.", tool.path), tool.known)?;
    tools.add(image_tool)?;
    edit.map_or(Ok(()), |edit| tools.change(tool.path, edit))?;
    Ok(ToolVerdict::Declared)
}

/// Checks an image tool. `prefix` is its path with a dot.
pub(super) fn check_image_tool(
    rules: &mut ToolRules<'_>,
    prefix: &str,
    known: &KnownMembers,
) -> Result<(ImageTool, Option<BodyEdit>), Error> {
    let ToolRules { models, body, changes } = rules;
    let mut options = Map::new();
    for (name, member) in known.iter().filter(|(name, _)| *name != MASK) {
        options.insert(name.to_owned(), scalar(&format!("{prefix}{name}"), member)?);
    }
    let adaptations = dialects::adapt_image_tool(changes.declared(), |id| models.find(id), &mut options);
    changes.note(prefix, &adaptations);
    let alias = image::replace_alias(models, &mut options);
    if let Some(alias) = &alias {
        changes.note_alias(prefix, alias);
    }
    let model = models.model_or_default(options.get("model").and_then(Value::as_str));
    image::remove_input_fidelity(prefix, &model, &mut options)?;
    image::check_transparency(prefix, &model, &options)?;
    if let Some(unknown) = known.first_unknown() {
        return Err(fields::unknown_parameter(format!("{prefix}{unknown}")).into());
    }
    fields::check_restricted(prefix, IMAGE_TOOL_FIELDS, |field| models.restriction(&model, field), &mut options)?;
    image::check_format_combinations(prefix, &model, &options)?;
    let text = |key: &str| options.get(key).and_then(Value::as_str);
    let number = |key: &str| options.get(key).and_then(Value::as_i64);
    known.get(MASK).map_or(Ok(()), |mask| mask::check_mask(&format!("{prefix}{MASK}"), body, mask.span))?;
    let replace = |span: ValueSpan, pieces| BodyEdit { start: span.start, end: span.end, pieces };
    let edit = if adaptations.iter().next().is_some() {
        Some(replace(known.span, write_tool(&options, body, known.get(MASK))))
    } else {
        let renamed = alias.zip(known.get("model"));
        renamed.map(|(alias, member)| replace(member.span, vec![to_piece(Value::from(alias.model).to_string())]))
    };
    // The check against the table has limited all values, so the conversions cannot fail.
    let tool = ImageTool {
        path: prefix.trim_end_matches('.').to_owned(),
        model: model.id.clone(),
        size: text("size").and_then(|size| size.parse::<SizeRequest>().ok()).unwrap_or_default(),
        quality: text("quality").map(str::to_owned),
        format: text("output_format").and_then(|format| format.parse().ok()).unwrap_or_default(),
        compression: number("output_compression").and_then(|level| u8::try_from(level).ok()).unwrap_or(100),
        partial_images: number("partial_images").and_then(|partials| u32::try_from(partials).ok()).unwrap_or(0),
    };
    Ok((tool, edit))
}

/// Writes a tool with these options, which have its type, and with its mask.
fn write_tool(options: &Map<String, Value>, body: &SpooledBytes, mask: Option<&BodyMember>) -> Vec<SpooledBytes> {
    let members: Vec<_> =
        options.iter().map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))).collect();
    let members = members.join(",");
    match mask {
        None => vec![to_piece(format!("{{{members}}}"))],
        Some(mask) => vec![
            to_piece(format!("{{{members},\"{MASK}\":")),
            body.slice(mask.span.start, mask.span.end),
            to_piece("}".to_owned()),
        ],
    }
}

fn to_piece(text: String) -> SpooledBytes {
    Bytes::from(text).into()
}

/// Returns the value of a member. An array or object is returned empty: the caller needs only its type to refuse it,
/// because no field of an image tool except the mask may be one.
fn scalar(name: &str, member: &BodyMember) -> Result<Value, Error> {
    match member.json_type() {
        JsonType::Array => Ok(Value::Array(Vec::new())),
        JsonType::Object => Ok(Value::Object(Map::new())),
        _ => member.parse().ok_or_else(|| too_long(name).into()),
    }
}

/// Returns the rejection of a value that is longer than any valid value.
pub(super) fn too_long(name: &str) -> Rejection {
    Rejection::new(name, RejectionReason::StringAboveMax, format!("Invalid '{name}': the value is too long."))
}
