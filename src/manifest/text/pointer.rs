//! JSON pointers (RFC 6901).

/// Returns the pointer to a member of the value at `parent`.
pub(crate) fn child(parent: &str, key: &str) -> String {
    let mut pointer = String::with_capacity(parent.len() + key.len() + 1);
    pointer.push_str(parent);
    pointer.push('/');
    for character in key.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
    pointer
}

/// Returns the pointer to an element of the value at `parent`.
pub(crate) fn element(parent: &str, index: usize) -> String {
    format!("{parent}/{index}")
}

/// Returns the keys and indices that a pointer names, with escapes resolved, from the root.
pub(super) fn steps(pointer: &str) -> impl Iterator<Item = String> + '_ {
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"))
}
