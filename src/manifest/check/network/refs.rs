//! Reads a git host's answer to a clone request: a list of branches in the pkt-line format of git, in which each line
//! begins with its length.

/// Returns whether the list contains the branch, or `None` if the bytes are not such a list or the list is incomplete.
pub(super) fn has_branch(list: &[u8], branch: &str) -> Option<bool> {
    let wanted = format!("refs/heads/{branch}");
    let (first, mut remaining) = next_packet(list)?;
    if !first?.starts_with(b"# service=git-upload-pack") {
        return None;
    }
    let (mut found, mut flushes) = (false, 0);
    // The first flush packet ends the service announcement, the second one ends the list.
    while flushes < 2 {
        let (content, after) = next_packet(remaining)?;
        match content {
            None => flushes += 1,
            Some(content) => found |= ref_name(content) == Some(wanted.as_bytes()),
        }
        remaining = after;
    }
    Some(found)
}

/// Returns the content of the next packet (`None` for a flush packet) and the bytes after it. Returns `None` if there
/// is no complete packet.
fn next_packet(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let digits = std::str::from_utf8(bytes.get(..4)?).ok().filter(|text| !text.starts_with('+'))?;
    match usize::from_str_radix(digits, 16).ok()? {
        0 => Some((None, bytes.get(4..)?)),
        length => Some((Some(bytes.get(4..length)?), bytes.get(length..)?)),
    }
}

/// Returns the name of the ref, which follows its id. On the first line, a NUL and the capabilities of the host follow.
fn ref_name(content: &[u8]) -> Option<&[u8]> {
    let space = content.iter().position(|byte| *byte == b' ')?;
    content.get(space + 1..)?.split(|byte| matches!(byte, 0 | b'\n')).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pkt_lines(lines: &[&str]) -> Vec<u8> {
        let line =
            |line: &&str| if line.is_empty() { "0000".to_owned() } else { format!("{:04x}{line}", line.len() + 4) };
        lines.iter().map(line).collect::<String>().into_bytes()
    }

    const SERVICE_LINE: &str = "# service=git-upload-pack\n";

    #[test]
    fn a_branch_is_found_by_its_whole_name() {
        let id = "0".repeat(40);
        let main = format!("{id} refs/heads/main\n");
        let list = pkt_lines(&[SERVICE_LINE, "", &format!("{id} HEAD\0multi_ack side-band\n"), &main, ""]);
        assert_eq!(has_branch(&list, "main"), Some(true));
        assert_eq!(has_branch(&list, "mai"), Some(false));
        assert_eq!(has_branch(&list, "maint"), Some(false));
        let only = pkt_lines(&[SERVICE_LINE, "", &format!("{id} refs/heads/main\0multi_ack\n"), ""]);
        assert_eq!(has_branch(&only, "main"), Some(true));
        assert_eq!(
            has_branch(&pkt_lines(&[SERVICE_LINE, "", &format!("{id} refs/tags/main\n"), ""]), "main"),
            Some(false)
        );
    }

    #[test]
    fn other_answers_and_incomplete_lists_give_no_result() {
        let id = "0".repeat(40);
        let main = format!("{id} refs/heads/main\n");
        let whole = pkt_lines(&[SERVICE_LINE, "", &main, ""]);
        for length in 0..whole.len() {
            assert_eq!(has_branch(&whole[..length], "main"), None, "{length}");
        }
        for other in [&b"<!DOCTYPE html>"[..], b"0003", b"+004abcd", b"ffff", b"0000"] {
            assert_eq!(has_branch(other, "main"), None);
        }
    }
}
