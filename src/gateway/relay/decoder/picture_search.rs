//! Finds images at other places than those of the contract ([`picture_places`](super::picture_places)).

use bytes::Bytes;
use serde_json::Value;

use super::AnswerSchema;
use super::json_visitor::{DecoderVisitor, ELEMENT_DEPTH};
use super::picture_places::{RebuiltMember, RebuiltValue, is_prose, may_be_picture, may_contain_picture};
use super::picture_text::{NoBase64, OtherText, PictureText, image_addresses};
use crate::gateway::relay::event::{ImagePlace, MemberScope, RelayEvent};
use crate::gateway::relay::relay_error::MalformedAnswer;
use crate::stream::json::{JsonPosition, ValueInterest};

/// The most addresses of images that are kept (our choice): more than a request may have images.
const ADDRESSES_MAX: usize = 16;
/// The longest address that is kept, in bytes (our choice); signed ones are about a kilobyte long.
const ADDRESS_MAX: usize = 8 * 1024;

/// The search through one answer.
#[derive(Debug, Default)]
pub(super) struct PictureSearch {
    /// True if the answer is searched: it becomes an answer of the image endpoints.
    pub(super) is_enabled: bool,
    /// The member that is visited value by value.
    pub(super) member: Option<RebuiltMember>,
    /// The text that is being read.
    pub(super) text: Option<PictureText>,
    /// True if the text is an image whose beginning has been passed on.
    pub(super) has_begun: bool,
    /// The web addresses that stand in place of images.
    pub(super) addresses: Vec<String>,
}

// === impl PictureSearch ===

impl PictureSearch {
    pub(super) const fn is_in_member(&self) -> bool {
        self.member.is_some()
    }

    fn add_addresses(&mut self, text: &str, is_prose: bool) {
        for address in image_addresses(text, is_prose) {
            let is_new = address.len() <= ADDRESS_MAX && !self.addresses.contains(&address);
            if is_new && self.addresses.len() < ADDRESSES_MAX {
                self.addresses.push(address);
            }
        }
    }
}

// === impl DecoderVisitor ===

impl DecoderVisitor<'_> {
    /// Returns the interest in a value that may be an image or contain one, and in the values beside it.
    pub(super) fn start_picture(&mut self, at: JsonPosition<'_>, first: u8) -> Option<ValueInterest> {
        if !self.pictures.is_enabled {
            return None;
        }
        if first == b'"' && may_be_picture(at) && self.wants_picture() {
            self.pictures.text = Some(PictureText::new(at.key == "b64_json"));
            return Some(ValueInterest::Text);
        }
        let may_open = matches!(first, b'{' | b'[') && may_contain_picture(at);
        if let Some(member) = &mut self.pictures.member {
            if !may_open {
                return Some(ValueInterest::Optional);
            }
            member.open(at.key, first);
        } else if may_open && self.begins_member(at, first) {
            let (scope, name) = self.scope(at);
            self.pictures.member = Some(RebuiltMember::new(scope, name, first));
        } else {
            return None;
        }
        Some(ValueInterest::Skip)
    }

    /// Passes on what has been found in the text.
    pub(super) fn push_picture(
        &mut self,
        at: JsonPosition<'_>,
        found: Result<Bytes, NoBase64>,
    ) -> Result<(), MalformedAnswer> {
        let base64 = found.map_err(|NoBase64| MalformedAnswer::Base64)?;
        if !base64.is_empty() {
            self.begin_picture(at);
            self.push_image(ImagePlace::Item, base64);
        }
        Ok(())
    }

    /// Ends the text: as an image, or as a member of the answer.
    pub(super) fn end_picture(&mut self, at: JsonPosition<'_>, text: &mut PictureText) {
        let value = match text.finish() {
            Ok(rest) => {
                if !rest.is_empty() {
                    self.begin_picture(at);
                    self.push_image(ImagePlace::Item, rest);
                }
                self.push(RelayEvent::ImageEnded { place: ImagePlace::Item });
                if self.is_item_of_its_own(at) {
                    self.push(RelayEvent::Ended { scope: MemberScope::Item });
                }
                self.pictures.has_begun = false;
                return;
            }
            Err(OtherText::Whole(text)) => {
                self.pictures.add_addresses(&text, is_prose(at));
                Some(Value::String(text))
            }
            Err(OtherText::TooLong) => None,
        };
        if let Some(member) = &mut self.pictures.member {
            return member.add(at.key, value);
        }
        let (scope, name) = self.scope(at);
        let is_element = self.has_elements() && at.depth == ELEMENT_DEPTH;
        let is_read = match &self.schema {
            AnswerSchema::ImageTool(tool) => tool.interest(scope, name) != ValueInterest::Skip,
            AnswerSchema::Images | AnswerSchema::Response => !is_element,
        };
        if is_read {
            self.push(match value {
                Some(value) => RelayEvent::Member { scope, name, value },
                None => RelayEvent::MemberDropped { scope, name },
            });
        }
    }

    /// Ends an object or array of the member that is visited.
    pub(super) fn end_in_member(&mut self) {
        let Some(mut member) = self.pictures.member.take() else { return };
        let Some(value) = member.close() else {
            // An object or array around the one that has ended is still open.
            self.pictures.member = Some(member);
            return;
        };
        let (scope, name) = (member.scope, member.name.as_str());
        match value {
            RebuiltValue::Whole(value) => self.push(RelayEvent::Member { scope, name, value }),
            RebuiltValue::Dropped => self.push(RelayEvent::MemberDropped { scope, name }),
            RebuiltValue::HasImage => {}
        }
    }

    fn wants_picture(&self) -> bool {
        match &self.schema {
            AnswerSchema::Images => true,
            AnswerSchema::ImageTool(tool) => tool.wants_found_image(),
            AnswerSchema::Response => false,
        }
    }

    /// True if a member that may contain an image begins at this position. The lists of elements have items of their own.
    fn begins_member(&self, at: JsonPosition<'_>, first: u8) -> bool {
        match &self.schema {
            AnswerSchema::Images if self.has_elements() => {
                let is_list = at.depth == 1 && first == b'[' && matches!(at.key, "data" | "images");
                !is_list && at.depth != ELEMENT_DEPTH
            }
            AnswerSchema::Images => true,
            AnswerSchema::ImageTool(_) => {
                matches!(self.scope(at), (MemberScope::Item, "content") | (MemberScope::Answer, "choices" | "data"))
            }
            AnswerSchema::Response => false,
        }
    }

    /// Begins an image, unless it has begun.
    fn begin_picture(&mut self, at: JsonPosition<'_>) {
        if std::mem::replace(&mut self.pictures.has_begun, true) {
            return;
        }
        if let Some(member) = &mut self.pictures.member {
            member.note_image();
        }
        if self.is_item_of_its_own(at) {
            self.push(RelayEvent::ItemBegun { event: None });
        } else if self.framer.is_some() && at.depth > 1 {
            self.push(RelayEvent::ElementBegun);
        }
    }

    /// True if the image at this position belongs to no element and no event.
    fn is_item_of_its_own(&self, at: JsonPosition<'_>) -> bool {
        self.has_elements()
            && match &self.pictures.member {
                Some(member) => member.scope != MemberScope::Item,
                None => at.depth <= ELEMENT_DEPTH,
            }
    }
}
