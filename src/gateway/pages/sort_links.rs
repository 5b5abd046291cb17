//! The heads of columns by which a table can be sorted.

use super::http_messages::PageRequest;

/// The name of the parameter of the query with the order of a list.
pub(super) const SORT_FIELD: &str = "sort";

/// The orders of one list, as links that keep the filters and lead to the first page.
#[derive(Debug)]
pub(super) struct SortLinks {
    path: &'static str,
    /// The query of the page without its order and its position, with `&` at its end unless it is empty.
    query: String,
    /// The order of the list.
    current: String,
    /// True if the address names an order.
    is_chosen: bool,
}

// === impl SortLinks ===

impl SortLinks {
    /// The links of the list at `path`, which is sorted in the order `current`.
    pub(super) fn new(request: &PageRequest, path: &'static str, current: impl ToString) -> Self {
        let mut query = request.query.to_query_without(&[SORT_FIELD, "before", "done"]);
        if !query.is_empty() {
            query.push('&');
        }
        Self { path, query, current: current.to_string(), is_chosen: request.query_param(SORT_FIELD).is_some() }
    }

    /// The order that the address names, which a form with filters must keep.
    pub(super) fn chosen(&self) -> Option<&str> {
        self.is_chosen.then_some(self.current.as_str())
    }

    /// The address of the list in this order.
    pub(super) fn link(&self, order: &str) -> String {
        format!("{}?{}{SORT_FIELD}={order}", self.path, self.query)
    }

    /// True if the list is sorted in this order.
    pub(super) fn is_current(&self, order: &str) -> bool {
        self.current == order
    }

    /// The direction of this order, as `aria-sort` names it.
    #[expect(clippy::unused_self, reason = "a template calls functions on its fields")]
    pub(super) fn direction(&self, order: &str) -> &'static str {
        if order == "name" { "ascending" } else { "descending" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_keeps_the_filters_and_leads_to_the_first_page() {
        let request = PageRequest::with_query("search=a%26b&before=key_1&sort=name&done=deleted");
        let links = SortLinks::new(&request, "/keys", "name");
        assert_eq!(links.link("cost"), "/keys?search=a%26b&sort=cost");
        assert_eq!((links.is_current("name"), links.direction("name")), (true, "ascending"));
        assert_eq!(links.chosen(), Some("name"));
        assert_eq!((links.is_current("cost"), links.direction("cost")), (false, "descending"));
        let request = PageRequest::with_query("");
        let links = SortLinks::new(&request, "/keys", "created");
        assert_eq!((links.link("cost").as_str(), links.chosen()), ("/keys?sort=cost", None));
    }
}
