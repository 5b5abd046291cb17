//! Visits every value of a body once, and finds what judgements need: the members of the request itself, each declared
//! tool, and the contents that [`BodyContents`] keeps.
//!
//! A tool is an element of a list whose name is `tools` or ends with `_tools`, at any depth and in any member, or the
//! `tool_choice`. It is checked by the same rules at each place. Memory is bounded, whatever the body has: the depth by the
//! tokenizer, everything that is kept by a number.

mod named_parts;

use super::body_contents::{BodyContents, StoredKind};
use super::body_members::{JsonType, KnownMembers, ValueSpan};
use super::body_path::BodyPath;
use super::body_reader::{BegunValue, BodyReader};
use super::item_kind::ItemKind;
use super::member_name::{MemberName, SeenNames};
use super::tool::{self, DeclaredTool, ToolRules, ToolVerdict};
use crate::error::{Error, Rejection};
use crate::gateway::rules::fields;

/// The members of the request itself that are read.
const REQUEST_MEMBERS: &[MemberName] = &[
    MemberName::Model,
    MemberName::Input,
    MemberName::Instructions,
    MemberName::Tools,
    MemberName::ToolChoice,
    MemberName::Stream,
    MemberName::Store,
    MemberName::ParallelToolCalls,
    MemberName::PreviousResponseId,
    MemberName::Background,
    MemberName::Prompt,
    MemberName::PromptCacheKey,
    MemberName::Conversation,
    MemberName::User,
    MemberName::SafetyIdentifier,
    MemberName::MaxOutputTokens,
    MemberName::MaxToolCalls,
];

/// A body that has been read to its end.
#[derive(Debug)]
pub(super) struct VisitedBody {
    /// The members of the request itself.
    pub(super) known: KnownMembers,
    pub(super) contents: BodyContents,
    /// The first broken rule of an item or tool.
    pub(super) rejection: Option<Rejection>,
}

/// The place of an object, as far as its members depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The body itself.
    Request,
    /// An element of the input.
    Item,
    /// A tool, or the choice of one.
    Tool,
    /// An object whose `id` is that of a stored thing.
    Stored(StoredKind),
    /// An object whose `url` is the address or data of an image.
    Image,
    /// The member `text` of the request.
    TextOptions,
    /// The format of the text.
    TextFormat,
    /// Anywhere else.
    Other,
}

/// The properties of an object that are known only at its end.
#[derive(Debug, Default)]
struct ObjectSummary {
    seen: SeenNames,
    kind: ItemKind,
    id: Option<String>,
    ciphertext: Option<String>,
    /// True if the object has the content that its id would otherwise stand for.
    has_content: bool,
    /// The reason why an element of its list of tools is no tool.
    malformed_tool: Option<Rejection>,
}

struct BodyVisitor<'a> {
    rules: ToolRules<'a>,
    reader: BodyReader<'a>,
    path: BodyPath,
    /// The last short text; cut if it is longer than `SHORT_TEXT_MAX`.
    text: String,
    is_text_cut: bool,
    known: KnownMembers,
    contents: BodyContents,
    is_in_choice: bool,
    /// The number of open values that are data of the caller, such as schemas, and name nothing that is stored.
    open_data: u32,
    /// A choice of the image tool that has no options, and its path.
    image_reference: Option<(String, KnownMembers)>,
    rejection: Option<Rejection>,
}

/// Reads a whole body, which must be a JSON object.
pub(super) fn visit_body(rules: ToolRules<'_>) -> Result<VisitedBody, Error> {
    let (reader, value) = BodyReader::over_body(rules.body)?;
    let mut visitor = BodyVisitor {
        rules,
        reader,
        path: BodyPath::default(),
        text: String::new(),
        is_text_cut: false,
        known: KnownMembers::default(),
        contents: BodyContents::default(),
        is_in_choice: false,
        open_data: 0,
        image_reference: None,
        rejection: None,
    };
    let span = visitor.visit_value(value, Place::Request)?;
    visitor.reader.finish()?;
    if value.first != b'{' {
        return Err(fields::not_object(span.json_type.as_str()).into());
    }
    visitor.known.span = span;
    visitor.check_image_reference()?;
    Ok(VisitedBody { known: visitor.known, contents: visitor.contents, rejection: visitor.rejection })
}

// === impl BodyVisitor ===

impl BodyVisitor<'_> {
    /// Visits a value of any type. `place` counts if it is an object.
    fn visit_value(&mut self, value: BegunValue, place: Place) -> Result<ValueSpan, Error> {
        match value.first {
            b'{' => self.visit_object(value, place, None),
            b'[' => self.visit_array(value, Place::Other),
            _ => self.reader.skip(value),
        }
    }

    /// Visits an array with elements at this place.
    fn visit_array(&mut self, array: BegunValue, place: Place) -> Result<ValueSpan, Error> {
        self.path.enter_array();
        while let Some(element) = self.reader.next_value()? {
            let span = self.visit_value(element, place)?;
            if place == Place::Item && element.first != b'{' {
                let rejection = fields::wrong_type(&self.path.write(), "an object", span.json_type.as_str());
                self.refuse(rejection);
            }
            self.path.next_element();
        }
        self.path.leave();
        Ok(self.reader.end_span(array))
    }

    /// Visits an object. The members that an image tool has are added to `tool`.
    fn visit_object(
        &mut self,
        begun: BegunValue,
        place: Place,
        mut tool: Option<&mut KnownMembers>,
    ) -> Result<ValueSpan, Error> {
        let mut object = ObjectSummary::default();
        while let Some(value) = self.reader.next_value()? {
            let name = MemberName::find(self.reader.key());
            self.path.enter_member(self.reader.key());
            if name.is_some_and(|name| !object.seen.note(name)) {
                return Err(fields::duplicate_parameter(self.path.write()).into());
            }
            match (place, tool.as_deref_mut()) {
                (Place::Request, _) => self.visit_request_member(value, name, &mut object)?,
                (_, Some(known)) => self.visit_tool_member(value, name, known, &mut object)?,
                _ => drop(self.visit_member(value, name, place, &mut object)?),
            }
            self.path.leave();
        }
        self.end_object(object, place);
        Ok(self.reader.end_span(begun))
    }

    /// Visits a member of the request itself.
    fn visit_request_member(
        &mut self,
        value: BegunValue,
        name: Option<MemberName>,
        object: &mut ObjectSummary,
    ) -> Result<(), Error> {
        let read = name.filter(|name| REQUEST_MEMBERS.contains(name));
        if name.is_none()
            && let Some(name) = MemberName::find(&self.reader.key().to_ascii_lowercase())
            && REQUEST_MEMBERS.contains(&name)
        {
            // Some parsers do not distinguish case.
            self.refuse(fields::unknown_parameter(self.path.write()));
        }
        let (span, raw) = match (read, value.first) {
            (Some(MemberName::Input), b'[') => (self.visit_array(value, Place::Item)?, None),
            (Some(MemberName::ToolChoice), b'{') => (self.visit_choice(value)?, None),
            (Some(MemberName::Conversation), b'{') => {
                (self.visit_object(value, Place::Stored(StoredKind::Conversation), None)?, None)
            }
            (Some(MemberName::Prompt), b'{') => {
                (self.visit_object(value, Place::Stored(StoredKind::Prompt), None)?, None)
            }
            (None, b'{') if name == Some(MemberName::Text) => {
                (self.visit_object(value, Place::TextOptions, None)?, None)
            }
            (Some(_), b'{' | b'[') | (None, _) => (self.visit_member(value, name, Place::Request, object)?, None),
            (Some(_), _) => self.reader.capture(value)?,
        };
        if let Some(name) = read {
            self.known.insert(name.as_str(), span, raw);
            self.note_stored_member(name);
        }
        Ok(())
    }

    /// Adds the id of a stored thing that a member of the request states as a text.
    fn note_stored_member(&mut self, name: MemberName) {
        let kind = match name {
            MemberName::PreviousResponseId => StoredKind::Response,
            MemberName::Conversation => StoredKind::Conversation,
            MemberName::Prompt => StoredKind::Prompt,
            _ => return,
        };
        if let Some(member) = self.known.get(name.as_str()).filter(|member| member.span.json_type == JsonType::Text) {
            self.contents.add_stored(kind, self.path.write(), member.parse());
        }
    }

    /// Visits the `tool_choice`, which names a tool or lists some.
    fn visit_choice(&mut self, value: BegunValue) -> Result<ValueSpan, Error> {
        self.is_in_choice = true;
        let (span, malformed) = self.visit_tool(value)?;
        self.is_in_choice = false;
        // The upstream refuses a choice without a type: it names no tool.
        drop(malformed);
        Ok(span)
    }

    /// Visits a list of tools, which is a member of an object at this place.
    fn visit_tool_list(
        &mut self,
        list: BegunValue,
        place: Place,
        is_exact: bool,
        object: &mut ObjectSummary,
    ) -> Result<ValueSpan, Error> {
        let is_open = place == Place::Other && !self.is_in_choice || !is_exact;
        self.path.enter_array();
        while let Some(element) = self.reader.next_value()? {
            if place == Place::Request && is_exact {
                self.contents.tools.listed += 1;
            }
            match self.visit_tool(element)?.1 {
                // Such a list may be anything: an element that is no tool declares nothing.
                Some(_) if is_open => {}
                Some(malformed) if place == Place::Item => drop(object.malformed_tool.get_or_insert(malformed)),
                Some(malformed) => self.refuse(malformed),
                None => {}
            }
            self.path.next_element();
        }
        self.path.leave();
        Ok(self.reader.end_span(list))
    }

    /// Visits a tool. Returns the rejection of a value that is none.
    fn visit_tool(&mut self, value: BegunValue) -> Result<(ValueSpan, Option<Rejection>), Error> {
        let mut known = KnownMembers::default();
        let span = match value.first {
            b'{' => self.visit_object(value, Place::Tool, Some(&mut known))?,
            _ => self.visit_value(value, Place::Other)?,
        };
        known.span = span;
        if self.rejection.is_some() {
            return Ok((span, None));
        }
        let path = self.path.write();
        let kind = match tool::tool_type(&path, &known) {
            Ok(kind) => kind,
            Err(malformed) => return Ok((span, Some(malformed))),
        };
        let declared = DeclaredTool { path: &path, known: &known, is_choice: self.is_in_choice };
        match tool::check_tool(&mut self.rules, &declared, &kind, &mut self.contents.tools) {
            Ok(ToolVerdict::Declared) => {}
            Ok(ToolVerdict::ImageReference) => self.image_reference = Some((path, known)),
            Err(Error::Invalid(rejection)) => self.refuse(rejection),
            Err(error) => return Err(error),
        }
        Ok((span, None))
    }

    /// Visits a member of a tool.
    fn visit_tool_member(
        &mut self,
        value: BegunValue,
        name: Option<MemberName>,
        known: &mut KnownMembers,
        object: &mut ObjectSummary,
    ) -> Result<(), Error> {
        let Some(field) = tool::member(self.reader.key(), self.rules.changes) else {
            if value.first != b'n' || !fields::is_unserved(self.reader.key()) {
                known.note_unknown(self.reader.key());
            }
            return self.visit_member(value, name, Place::Tool, object).map(drop);
        };
        let (span, raw) = match value.first {
            b'{' | b'[' => (self.visit_value(value, Place::Other)?, None),
            _ => self.reader.capture(value)?,
        };
        known.insert(field, span, raw);
        Ok(())
    }

    /// Checks a choice of the image tool without options like a declared tool, if none is declared.
    fn check_image_reference(&mut self) -> Result<(), Error> {
        let Some((path, known)) = self.image_reference.take() else { return Ok(()) };
        if self.rejection.is_some() || !self.contents.tools.image_tools().is_empty() {
            return Ok(());
        }
        let checked = tool::check_image_tool(&mut self.rules, &format!("{path}."), &known);
        match checked.and_then(|(tool, _)| Ok(self.contents.tools.add(tool)?)) {
            Err(Error::Invalid(rejection)) => self.refuse(rejection),
            result => result?,
        }
        Ok(())
    }

    /// Notes a broken rule, unless one was broken before.
    fn refuse(&mut self, rejection: Rejection) {
        self.rejection.get_or_insert(rejection);
    }
}
