//! What a git host answers to whoever wants to clone: a list of branches, in lines that begin with their length.

/// Whether the list has a branch; nothing where it is no such list, or not a whole one.
pub(super) fn has_branch(list: &[u8], branch: &str) -> Option<bool> {
    let wanted = format!("refs/heads/{branch}");
    let (first, mut rest) = line(list)?;
    if !first?.starts_with(b"# service=git-upload-pack") {
        return None;
    }
    let (mut found, mut ends) = (false, 0);
    // One mark ends the greeting, the next one the list.
    while ends < 2 {
        let (content, behind) = line(rest)?;
        match content {
            None => ends += 1,
            Some(content) => found |= name(content) == Some(wanted.as_bytes()),
        }
        rest = behind;
    }
    Some(found)
}

/// The next line and what is behind it; without content it is the mark of an end.
fn line(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let digits = std::str::from_utf8(bytes.get(..4)?).ok().filter(|text| !text.starts_with('+'))?;
    match usize::from_str_radix(digits, 16).ok()? {
        0 => Some((None, bytes.get(4..)?)),
        length => Some((Some(bytes.get(4..length)?), bytes.get(length..)?)),
    }
}

/// The name behind the id. The first line goes on with what the host can do.
fn name(content: &[u8]) -> Option<&[u8]> {
    let space = content.iter().position(|byte| *byte == b' ')?;
    content.get(space + 1..)?.split(|byte| matches!(byte, 0 | b'\n')).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(lines: &[&str]) -> Vec<u8> {
        let line =
            |line: &&str| if line.is_empty() { "0000".to_owned() } else { format!("{:04x}{line}", line.len() + 4) };
        lines.iter().map(line).collect::<String>().into_bytes()
    }

    const GREETING: &str = "# service=git-upload-pack\n";

    #[test]
    fn a_branch_is_found_by_its_whole_name() {
        let id = "0".repeat(40);
        let main = format!("{id} refs/heads/main\n");
        let list = packed(&[GREETING, "", &format!("{id} HEAD\0multi_ack side-band\n"), &main, ""]);
        assert_eq!(has_branch(&list, "main"), Some(true));
        assert_eq!(has_branch(&list, "mai"), Some(false));
        assert_eq!(has_branch(&list, "maint"), Some(false));
        let only = packed(&[GREETING, "", &format!("{id} refs/heads/main\0multi_ack\n"), ""]);
        assert_eq!(has_branch(&only, "main"), Some(true));
        assert_eq!(has_branch(&packed(&[GREETING, "", &format!("{id} refs/tags/main\n"), ""]), "main"), Some(false));
    }

    #[test]
    fn what_is_no_list_or_not_whole_says_nothing() {
        let id = "0".repeat(40);
        let main = format!("{id} refs/heads/main\n");
        let whole = packed(&[GREETING, "", &main, ""]);
        for length in 0..whole.len() {
            assert_eq!(has_branch(&whole[..length], "main"), None, "{length}");
        }
        for other in [&b"<!DOCTYPE html>"[..], b"0003", b"+004abcd", b"ffff", b"0000"] {
            assert_eq!(has_branch(other, "main"), None);
        }
    }
}
