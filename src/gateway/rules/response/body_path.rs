//! The path of the value that is being read, such as `input[3].tools[0].size`. It is written only for an answer or a
//! finding, because a body may have millions of values.

use crate::gateway::rules::fields;

/// The path of a value, as the steps to it from the outermost object.
#[derive(Debug, Default)]
pub(super) struct BodyPath {
    /// The keys of all steps, one after the other.
    keys: String,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A member, with the beginning of its key in `keys`.
    Member(usize),
    /// An element, with its index.
    Element(usize),
}

// === impl BodyPath ===

impl BodyPath {
    pub(super) fn enter_member(&mut self, key: &str) {
        self.steps.push(Step::Member(self.keys.len()));
        self.keys.push_str(key);
    }

    /// Enters the first element of an array.
    pub(super) fn enter_array(&mut self) {
        self.steps.push(Step::Element(0));
    }

    pub(super) fn next_element(&mut self) {
        if let Some(Step::Element(index)) = self.steps.last_mut() {
            *index += 1;
        }
    }

    /// Leaves a member or an array.
    pub(super) fn leave(&mut self) {
        if let Some(Step::Member(start)) = self.steps.pop() {
            self.keys.truncate(start);
        }
    }

    /// Writes the path. Long keys are shortened.
    pub(super) fn write(&self) -> String {
        let mut written = String::new();
        let mut end = self.keys.len();
        let mut keys = Vec::new();
        for step in self.steps.iter().rev() {
            if let Step::Member(start) = step {
                keys.push(&self.keys[*start..end]);
                end = *start;
            }
        }
        for step in &self.steps {
            match step {
                Step::Member(_) if written.is_empty() => {
                    written.push_str(&fields::clip(keys.pop().unwrap_or_default()));
                }
                Step::Member(_) => written.push_str(&format!(".{}", fields::clip(keys.pop().unwrap_or_default()))),
                Step::Element(index) => written.push_str(&format!("[{index}]")),
            }
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_keys_and_indexes_of_its_steps() {
        let mut path = BodyPath::default();
        path.enter_member("input");
        path.enter_array();
        path.next_element();
        path.enter_member("tools");
        path.enter_array();
        path.enter_member("size");
        assert_eq!(path.write(), "input[1].tools[0].size");
        path.leave();
        path.leave();
        path.leave();
        path.next_element();
        path.enter_member(&"x".repeat(256));
        assert_eq!(path.write(), format!("input[2].{}…", "x".repeat(60)));
    }
}
