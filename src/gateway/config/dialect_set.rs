//! The set of dialects that a group or a key declares.

use super::Dialect;

/// A set of dialects.
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
}

impl FromIterator<Dialect> for DialectSet {
    fn from_iter<I: IntoIterator<Item = Dialect>>(dialects: I) -> Self {
        Self { bits: dialects.into_iter().fold(0, |bits, dialect| bits | 1 << dialect as u8) }
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
}
