//! The set of dialects that a group or a key declares.

use std::fmt;

use super::Dialect;

/// A set of dialects. Its text is the words of its dialects in their fixed order, separated by spaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DialectSet {
    /// One bit for each dialect, by its position in the declaration.
    bits: u8,
}

// === impl DialectSet ===

impl DialectSet {
    /// Returns the set of all dialects.
    pub(crate) fn all() -> Self {
        Dialect::ALL.into_iter().collect()
    }

    /// True if the dialect is in the set.
    pub(crate) const fn contains(self, dialect: Dialect) -> bool {
        self.bits & (1 << dialect as u8) != 0
    }

    /// Returns the dialects that are in at least one of the two sets.
    pub(crate) const fn union(self, other: Self) -> Self {
        Self { bits: self.bits | other.bits }
    }

    /// Returns the dialects of this set that are not in the other one.
    pub(crate) const fn difference(self, other: Self) -> Self {
        Self { bits: self.bits & !other.bits }
    }

    /// True if the set has no dialect.
    pub(crate) const fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// Returns the dialects, in their fixed order.
    pub(crate) fn iter(self) -> impl Iterator<Item = Dialect> {
        Dialect::ALL.into_iter().filter(move |dialect| self.contains(*dialect))
    }

    /// Returns the text of the set as it is stored; `None` if the set is empty.
    pub(crate) fn to_stored(self) -> Option<String> {
        (!self.is_empty()).then(|| self.to_string())
    }

    /// Reads the text of a stored set. A word that is not known, such as one of a newer gateway, is left out.
    pub(crate) fn from_stored(text: &str) -> Self {
        text.split(' ').filter_map(|word| Dialect::from_word(word).ok()).collect()
    }
}

impl FromIterator<Dialect> for DialectSet {
    fn from_iter<I: IntoIterator<Item = Dialect>>(dialects: I) -> Self {
        Self { bits: dialects.into_iter().fold(0, |bits, dialect| bits | 1 << dialect as u8) }
    }
}

impl fmt::Display for DialectSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, dialect) in self.iter().enumerate() {
            write!(f, "{}{}", if index > 0 { " " } else { "" }, dialect.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_dialects_that_were_put_into_it_and_no_others() {
        let set: DialectSet = [Dialect::Models, Dialect::Sizes].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Dialect::Sizes, Dialect::Models]);
        assert!(!set.is_empty() && DialectSet::default().is_empty());
        assert_eq!(DialectSet::all().difference(set).iter().count(), Dialect::ALL.len() - 2);
    }

    #[test]
    fn the_text_of_a_set_is_read_back() {
        for bits in 0..1 << Dialect::ALL.len() {
            let set = DialectSet { bits };
            assert_eq!(set.to_stored().map(|text| DialectSet::from_stored(&text)).unwrap_or_default(), set);
        }
        assert_eq!(DialectSet::from_stored("url newer sizes").to_string(), "sizes url");
    }
}
