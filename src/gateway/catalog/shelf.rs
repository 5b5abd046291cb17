//! What was fetched, until it is old: one fetch at a time for each owner, and the older answer while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::TextModel;

/// After this an answer is fetched anew, while the old one still serves (ours): models come and go by the month.
const FRESH: Duration = Duration::from_secs(600);
/// How soon after a failure it is tried again (ours).
const RETRY: Duration = Duration::from_secs(60);
/// How long an answer serves whose owner is in trouble (ours).
const USABLE: Duration = Duration::from_secs(3600);
/// So many fetches at once (ours): a list may be of megabytes.
const FLIGHTS: usize = 4;

/// The models of one owner.
pub(super) type Models = Arc<[TextModel]>;

/// Why there is no new answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The owner is not let in: what it once could name it can no longer use.
    Refused,
    /// Something that passes.
    Trouble,
}

/// The answers, by owner.
#[derive(Debug)]
pub(super) struct Shelf<T> {
    books: Mutex<Vec<Book<T>>>,
    flights: Semaphore,
}

#[derive(Debug)]
struct Book<T> {
    owner: Weak<T>,
    /// Nothing until the first fetch has ended.
    models: watch::Sender<Option<Models>>,
    due: Instant,
    usable_until: Instant,
    under_way: bool,
}

/// A fetch. However it ends, the next one may begin.
struct Flight<T> {
    shelf: Arc<Shelf<T>>,
    owner: Weak<T>,
    result: Result<Models, Failed>,
}

// === impl Shelf ===

impl<T: Send + Sync + 'static> Shelf<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { books: Mutex::default(), flights: Semaphore::new(FLIGHTS) })
    }

    /// What is known of this owner, now or as soon as it is. `fetch` runs where it is due, and goes on without us.
    pub(super) fn look(
        self: &Arc<Self>,
        owner: &Arc<T>,
        fetch: impl Future<Output = Result<Vec<TextModel>, Failed>> + Send + 'static,
    ) -> watch::Receiver<Option<Models>> {
        let now = Instant::now();
        let owner = Arc::downgrade(owner);
        let mut books = self.lock();
        books.retain(|book| book.owner.strong_count() > 0);
        let at = books.iter().position(|book| book.owner.ptr_eq(&owner)).unwrap_or_else(|| {
            books.push(Book::new(owner.clone(), now));
            books.len() - 1
        });
        let book = &mut books[at];
        if book.due <= now && !book.under_way {
            book.under_way = true;
            let flight = Flight { shelf: Arc::clone(self), owner, result: Err(Failed::Trouble) };
            Handle::current().spawn(async move {
                let shelf = Arc::clone(&flight.shelf);
                // It is never closed.
                let _turn = shelf.flights.acquire().await;
                flight.end(fetch.await.map(Models::from));
            });
        }
        book.models.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Book<T>>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Book ===

impl<T> Book<T> {
    fn new(owner: Weak<T>, now: Instant) -> Self {
        Self { owner, models: watch::Sender::new(None), due: now, usable_until: now, under_way: false }
    }

    fn end(&mut self, result: Result<Models, Failed>, now: Instant) {
        self.under_way = false;
        match result {
            Ok(models) => {
                (self.due, self.usable_until) = (now + FRESH, now + USABLE);
                self.models.send_replace(Some(models));
            }
            Err(failed) => {
                self.due = now + RETRY;
                let is_usable = failed == Failed::Trouble && now < self.usable_until;
                if !is_usable {
                    self.models.send_replace(Some(Models::default()));
                }
            }
        }
    }
}

// === impl Flight ===

impl<T> Flight<T> {
    fn end(mut self, result: Result<Models, Failed>) {
        self.result = result;
    }
}

impl<T> Drop for Flight<T> {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Err(Failed::Trouble));
        let mut books = self.shelf.books.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(book) = books.iter_mut().find(|book| book.owner.ptr_eq(&self.owner)) {
            book.end(result, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;
    use tokio::time::advance;

    use super::*;

    type Answer = Result<Vec<TextModel>, Failed>;

    #[expect(clippy::unnecessary_wraps, reason = "an answer like the bad ones")]
    fn good(id: &str) -> Answer {
        Ok(vec![TextModel::named(id)])
    }

    fn ids(models: Option<&Models>) -> Option<Vec<&str>> {
        models.map(|models| models.iter().map(|model| model.id.as_str()).collect())
    }

    /// One owner who is asked as often as it is due, and counts.
    struct Desk {
        shelf: Arc<Shelf<()>>,
        owner: Arc<()>,
        fetches: Arc<AtomicUsize>,
    }

    impl Desk {
        fn new() -> Self {
            Self { shelf: Shelf::new(), owner: Arc::new(()), fetches: Arc::default() }
        }

        fn look(&self, answer: Answer) -> watch::Receiver<Option<Models>> {
            let fetches = Arc::clone(&self.fetches);
            self.shelf.look(&self.owner, async move {
                fetches.fetch_add(1, Ordering::SeqCst);
                answer
            })
        }

        /// What is known after everything that can happen now has happened.
        async fn settled(&self, answer: Answer) -> Vec<String> {
            let mut models = self.look(answer);
            tokio::task::yield_now().await;
            let models = models.wait_for(Option::is_some).await.unwrap();
            ids(models.as_ref()).unwrap().into_iter().map(str::to_owned).collect()
        }

        fn fetches(&self) -> usize {
            self.fetches.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_ask_at_once_wait_for_one_fetch() {
        let (desk, gate) = (Desk::new(), Arc::new(Notify::new()));
        let opened = Arc::clone(&gate);
        let mut first = desk.shelf.look(&desk.owner, async move {
            opened.notified().await;
            good("a")
        });
        let mut others: Vec<_> = (0..100).map(|_| desk.look(good("b"))).collect();
        tokio::task::yield_now().await;
        assert!(first.borrow().is_none(), "nothing is known before the fetch has ended");
        gate.notify_one();
        assert_eq!(ids(first.wait_for(Option::is_some).await.unwrap().as_ref()), Some(vec!["a"]));
        for other in &mut others {
            assert_eq!(ids(other.wait_for(Option::is_some).await.unwrap().as_ref()), Some(vec!["a"]));
        }
        assert_eq!(desk.fetches(), 0, "nobody else has fetched");
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_answer_serves_while_the_next_is_fetched() {
        let desk = Desk::new();
        assert_eq!(desk.settled(good("a")).await, ["a"]);
        advance(FRESH - Duration::from_secs(1)).await;
        assert_eq!((desk.settled(good("b")).await, desk.fetches()), (vec!["a".to_owned()], 1));
        advance(Duration::from_secs(1)).await;
        let models = desk.look(good("b"));
        assert_eq!(ids(models.borrow().as_ref()), Some(vec!["a"]), "the old one at once");
        assert_eq!((desk.settled(good("c")).await, desk.fetches()), (vec!["b".to_owned()], 2));
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_leaves_the_old_answer_for_an_hour_and_is_not_asked_about_at_each_request() {
        let desk = Desk::new();
        desk.settled(good("a")).await;
        advance(FRESH).await;
        for _ in 0..10 {
            assert_eq!(desk.settled(Err(Failed::Trouble)).await, ["a"]);
        }
        assert_eq!(desk.fetches(), 2);
        advance(USABLE).await;
        desk.settled(Err(Failed::Trouble)).await;
        assert!(desk.settled(Err(Failed::Trouble)).await.is_empty());
        advance(RETRY).await;
        desk.settled(good("b")).await;
        assert_eq!(desk.settled(good("b")).await, ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_that_is_no_longer_let_in_lists_nothing() {
        let desk = Desk::new();
        desk.settled(good("a")).await;
        advance(FRESH).await;
        desk.settled(Err(Failed::Refused)).await;
        assert!(desk.settled(good("a")).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_panics_is_a_failure_like_others() {
        let desk = Desk::new();
        let mut models = desk.shelf.look(&desk.owner, async { panic!("a fault of our own") });
        assert_eq!(ids(models.wait_for(Option::is_some).await.unwrap().as_ref()), Some(Vec::new()));
        advance(RETRY).await;
        desk.settled(good("a")).await;
        assert_eq!(desk.settled(good("a")).await, ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_belongs_to_an_account_that_is_gone_is_forgotten() {
        let desk = Desk::new();
        desk.settled(good("a")).await;
        let other = Arc::new(());
        drop(Arc::clone(&desk.shelf).look(&other, async { good("b") }));
        assert_eq!(desk.shelf.lock().len(), 2);
        drop(other);
        desk.settled(good("a")).await;
        assert_eq!(desk.shelf.lock().len(), 1);
    }
}
