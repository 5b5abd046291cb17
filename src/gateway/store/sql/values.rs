//! The values of a statement, for both drivers.

/// A value of a statement. NULL has a type, too: PostgreSQL asks for it.
#[derive(Debug, Clone)]
pub(in super::super) enum SqlValue {
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// A type of which both databases have values.
pub(in super::super) trait ToSqlValue {
    const NULL: SqlValue;

    fn to_sql_value(self) -> SqlValue;
}

// === impl ToSqlValue ===

macro_rules! impl_to_sql_value {
    ($variant:ident: $($type:ty),+) => {
        $(impl ToSqlValue for $type {
            const NULL: SqlValue = SqlValue::$variant(None);

            fn to_sql_value(self) -> SqlValue {
                SqlValue::$variant(Some(self.into()))
            }
        })+
    };
}
impl_to_sql_value!(Integer: i64);
impl_to_sql_value!(Text: &str, String);
impl_to_sql_value!(Bytes: &[u8], Vec<u8>);

impl<T: ToSqlValue> ToSqlValue for Option<T> {
    const NULL: SqlValue = T::NULL;

    fn to_sql_value(self) -> SqlValue {
        self.map_or(T::NULL, T::to_sql_value)
    }
}

impl<T: ToSqlValue + Clone> ToSqlValue for &T {
    const NULL: SqlValue = T::NULL;

    fn to_sql_value(self) -> SqlValue {
        self.clone().to_sql_value()
    }
}
