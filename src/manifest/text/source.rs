//! A file as it was read, which converts byte offsets to lines and columns.

/// The bytes of a file, and its name.
#[derive(Clone, Debug)]
pub struct SourceFile {
    name: String,
    bytes: Vec<u8>,
    /// The offset at which each line begins.
    lines: Vec<usize>,
    /// The number of characters of the file before each block, and before its end. With these, a column in a line of
    /// many megabytes is found quickly.
    character_counts: Vec<usize>,
}

/// The number of bytes in a block.
const BLOCK: usize = 4096;

/// A position as editors count: lines and characters, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextPosition {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1; a tab is one, and so is each code point.
    pub column: usize,
}

// === impl SourceFile ===

impl SourceFile {
    /// Creates a file. The name is only displayed.
    #[must_use]
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let breaks = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(breaks).collect();
        let mut character_counts = vec![0];
        for block in bytes.chunks(BLOCK) {
            character_counts.push(character_counts.last().copied().unwrap_or(0) + count(block));
        }
        Self { name: name.into(), bytes, lines, character_counts }
    }

    /// Returns the name of the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the text of the file, if it is UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// Returns the position of the byte at this offset; the end of the file for a larger offset.
    #[must_use]
    pub fn position(&self, offset: usize) -> TextPosition {
        let offset = offset.min(self.bytes.len());
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines.get(line - 1).copied().unwrap_or(0);
        TextPosition { line, column: self.characters_before(offset) - self.characters_before(start) + 1 }
    }

    fn characters_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        self.character_counts.get(block).copied().unwrap_or(0) + count(&self.bytes[block * BLOCK..offset])
    }
}

/// Returns the number of characters that begin in these bytes.
fn count(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_characters_count_from_one() {
        let source = SourceFile::new("a", "aä\nb\n".as_bytes());
        let at = |offset| {
            let TextPosition { line, column } = source.position(offset);
            (line, column)
        };
        assert_eq!([at(0), at(3), at(4), at(5), at(6), at(99)], [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1), (3, 1)]);
    }

    #[test]
    fn long_lines_are_counted_in_blocks() {
        let line = "aäb中".repeat(5000);
        let text = format!("{line}\n{line}");
        let source = SourceFile::new("a", text.as_bytes());
        for (letters, (offset, _)) in line.char_indices().enumerate() {
            let second = offset + line.len() + 1;
            let expected = TextPosition { line: 2, column: letters + 1 };
            assert_eq!(source.position(second), expected);
        }
        assert_eq!(SourceFile::new("a", "x".repeat(2 * BLOCK)).position(2 * BLOCK).column, 2 * BLOCK + 1);
    }
}
