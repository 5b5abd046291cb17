//! Notes what the members of an object name or contain: ids, inputs, types of items and names of tools.

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{BodyVisitor, ObjectSummary, Place};
use crate::error::Error;
use crate::gateway::rules::response::body_contents::StoredKind;
use crate::gateway::rules::response::body_members::ValueSpan;
use crate::gateway::rules::response::body_reader::BegunValue;
use crate::gateway::rules::response::item_kind::ItemKind;
use crate::gateway::rules::response::member_name::{self, MemberName};
use crate::gateway::rules::response::tool;

/// The most bytes of a type, name or id that are read (our choice). No such text that the gateway knows is longer.
const SHORT_TEXT_MAX: usize = 256;

// === impl BodyVisitor ===

impl BodyVisitor<'_> {
    /// Visits a member of an object at any place, and notes what it names.
    pub(super) fn visit_member(
        &mut self,
        value: BegunValue,
        name: Option<MemberName>,
        place: Place,
        object: &mut ObjectSummary,
    ) -> Result<ValueSpan, Error> {
        use MemberName as Name;
        if value.first == b'[' && member_name::lists_tools(self.reader.key()) {
            return self.visit_tool_list(value, place, name == Some(Name::Tools), object);
        }
        if name == Some(Name::Tools) && value.first == b'{' && matches!(place, Place::Item | Place::Tool) {
            self.contents.note_unjudged(self.path.write(), "is no list");
        }
        let Some(name) = name.filter(|_| self.open_data == 0) else { return self.visit_value(value, Place::Other) };
        match (name, value.first) {
            (_, b'n') => {}
            (Name::Content | Name::Role | Name::Result | Name::Output | Name::Summary, _) => object.has_content = true,
            _ => {}
        }
        match (name, value.first) {
            (
                Name::Annotations
                | Name::InputSchema
                | Name::Metadata
                | Name::Parameters
                | Name::Results
                | Name::Schema,
                b'{' | b'[',
            ) => {
                self.open_data += 1;
                let span = self.visit_value(value, Place::Other);
                self.open_data -= 1;
                span
            }
            (Name::Type | Name::Name | Name::Id, b'"') => self.visit_short_text(value, name, place, object),
            (Name::EncryptedContent, b'"') => self.visit_ciphertext(value, object),
            (Name::ImageUrl | Name::FileUrl | Name::FileData, b'"') => self.visit_input(value, name),
            (Name::Url, b'"') if place == Place::Image => self.visit_input(value, Name::ImageUrl),
            (Name::ImageUrl, b'{') => self.visit_object(value, Place::Image, None),
            (Name::Format, b'{') if place == Place::TextOptions => self.visit_object(value, Place::TextFormat, None),
            (_, b'"' | b'[') => match stored_kind(name) {
                Some(kind) if value.first == b'"' => self.visit_stored(value, kind),
                Some(kind) => self.visit_stored_list(value, kind),
                None => self.visit_value(value, Place::Other),
            },
            _ => self.visit_value(value, Place::Other),
        }
    }

    fn visit_short_text(
        &mut self,
        value: BegunValue,
        name: MemberName,
        place: Place,
        object: &mut ObjectSummary,
    ) -> Result<ValueSpan, Error> {
        let span = self.read_text(value)?;
        match (name, place) {
            (MemberName::Type, Place::TextFormat) => self.contents.tool_conflicts.has_text_format = self.text != "text",
            (MemberName::Type, _) => object.kind = ItemKind::of(&self.text),
            (MemberName::Id, Place::Stored(kind)) => {
                let id = self.short_text();
                self.contents.add_stored(kind, self.path.write(), id);
            }
            (MemberName::Id, _) => object.id = self.short_text(),
            (MemberName::Name, Place::Tool) => {
                self.contents.tools.has_own_image_tool |= tool::names_image_tool(&self.text);
            }
            _ => {}
        }
        Ok(span)
    }

    /// Visits the data or the address of an image or file.
    fn visit_input(&mut self, value: BegunValue, name: MemberName) -> Result<ValueSpan, Error> {
        let span = self.read_text(value)?;
        let is_data = self.text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
        let inputs = &mut self.contents.inputs;
        match name {
            MemberName::ImageUrl if is_data => inputs.inline_images += 1,
            MemberName::FileData => drop(inputs.first_file.get_or_insert_with(|| self.path.write())),
            _ => drop(inputs.first_address.get_or_insert_with(|| self.path.write())),
        }
        if name == MemberName::FileUrl {
            inputs.first_file.get_or_insert_with(|| self.path.write());
        }
        Ok(span)
    }

    fn visit_stored(&mut self, value: BegunValue, kind: StoredKind) -> Result<ValueSpan, Error> {
        let span = self.read_text(value)?;
        let id = self.short_text();
        self.contents.add_stored(kind, self.path.write(), id);
        Ok(span)
    }

    fn visit_stored_list(&mut self, list: BegunValue, kind: StoredKind) -> Result<ValueSpan, Error> {
        self.path.enter_array();
        while let Some(element) = self.reader.next_value()? {
            match element.first {
                b'"' => self.visit_stored(element, kind)?,
                _ => self.visit_value(element, Place::Other)?,
            };
            self.path.next_element();
        }
        self.path.leave();
        Ok(self.reader.end_span(list))
    }

    /// Visits an encrypted text, which only its maker can read.
    fn visit_ciphertext(&mut self, value: BegunValue, object: &mut ObjectSummary) -> Result<ValueSpan, Error> {
        let mut digest = Context::new(&SHA256);
        self.reader.visit_text(|text| digest.update(text.as_bytes()))?;
        object.ciphertext = Some(URL_SAFE_NO_PAD.encode(digest.finish()));
        Ok(self.reader.end_span(value))
    }

    /// Ends an object: its members may have come in any order.
    pub(super) fn end_object(&mut self, object: ObjectSummary, place: Place) {
        let ObjectSummary { kind, id, ciphertext, has_content, malformed_tool, .. } = object;
        if place == Place::Item {
            self.contents.tool_conflicts.note_item(kind);
            // The tools of a server are listed there with names and schemas, but without types.
            if let Some(malformed) = malformed_tool.filter(|_| kind != ItemKind::ServerTools) {
                self.refuse(malformed);
            }
        }
        if kind == ItemKind::InputFile {
            self.contents.inputs.first_file.get_or_insert_with(|| self.path.write());
        }
        let maker_id_kind = kind.maker_id_kind();
        for (kind, id) in [(maker_id_kind, id.as_ref()), (Some(StoredKind::Ciphertext), ciphertext.as_ref())] {
            if let (Some(kind), Some(id)) = (kind, id) {
                self.contents.add_maker_id(kind, self.path.write(), id.clone());
            }
        }
        let is_reference = match kind {
            ItemKind::Reference => true,
            ItemKind::ImageCall => !has_content,
            ItemKind::Unstated => place == Place::Item && !has_content,
            _ => false,
        };
        if is_reference && id.is_some() {
            self.contents.add_stored(StoredKind::Item, format!("{}.id", self.path.write()), id);
        }
    }

    /// Reads a text into `text`, cut at [`SHORT_TEXT_MAX`].
    fn read_text(&mut self, value: BegunValue) -> Result<ValueSpan, Error> {
        self.text.clear();
        let (text, mut length) = (&mut self.text, 0);
        self.reader.visit_text(|piece| {
            length += piece.len();
            text.push_str(&piece[..piece.floor_char_boundary(SHORT_TEXT_MAX - text.len())]);
        })?;
        self.is_text_cut = length > self.text.len();
        Ok(self.reader.end_span(value))
    }

    /// Returns the text that was read last, unless it was cut.
    fn short_text(&self) -> Option<String> {
        (!self.is_text_cut).then(|| self.text.clone())
    }
}

/// Returns the kind of stored thing that a member with this name has the id or the ids of.
const fn stored_kind(name: MemberName) -> Option<StoredKind> {
    Some(match name {
        MemberName::ComparisonResponseId => StoredKind::Response,
        MemberName::FileId | MemberName::FileIds => StoredKind::File,
        MemberName::Container | MemberName::ContainerId => StoredKind::Container,
        MemberName::VectorStoreId | MemberName::VectorStoreIds => StoredKind::VectorStore,
        MemberName::SkillId => StoredKind::Skill,
        _ => return None,
    })
}
