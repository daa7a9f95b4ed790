//! A service that is built for its first request and dropped when the process rests: the HTTP service of a worker has a
//! timer that ticks twice a second, and a broker that is used over local sockets needs no HTTP.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use actix_service::{Service, ServiceFactory};
use actors::idle;

/// The pause between two checks whether an unused service can be dropped.
const CHECK_INTERVAL: Duration = Duration::from_secs(6);

/// A service that `make` describes, built while it is needed.
pub struct LazyService<M, F: ServiceFactory<R>, R>(Rc<State<M, F, R>>);

struct State<M, F: ServiceFactory<R>, R> {
    make: M,
    built: RefCell<Option<Rc<F::Service>>>,
    /// Requests that are being served: for HTTP, connections.
    active: Cell<usize>,
    /// A task waits to drop the service.
    is_watched: Cell<bool>,
}

/// Counts a request while it is served.
struct Active<M, F: ServiceFactory<R>, R>(Rc<State<M, F, R>>);

impl<M, F: ServiceFactory<R>, R> Drop for Active<M, F, R> {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() - 1);
    }
}

impl<M, F, R> LazyService<M, F, R>
where
    M: Fn() -> F + 'static,
    F: ServiceFactory<R, Config = ()> + 'static,
    R: 'static,
{
    /// Builds nothing yet.
    pub fn new(make: M) -> Self {
        Self(Rc::new(State {
            make,
            built: RefCell::default(),
            active: Cell::default(),
            is_watched: Cell::default(),
        }))
    }
}

impl<M, F, R> State<M, F, R>
where
    M: Fn() -> F + 'static,
    F: ServiceFactory<R, Config = ()> + 'static,
    R: 'static,
{
    /// The service, built if need be. Two requests at once may build two; the later one is kept.
    async fn service(self: &Rc<Self>) -> Result<Rc<F::Service>, F::InitError> {
        if let Some(built) = &*self.built.borrow() {
            return Ok(Rc::clone(built));
        }
        let built = Rc::new((self.make)().new_service(()).await?);
        self.built.replace(Some(Rc::clone(&built)));
        if !self.is_watched.replace(true) {
            actix_rt::spawn(Rc::clone(self).drop_when_idle());
        }
        Ok(built)
    }

    async fn drop_when_idle(self: Rc<Self>) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if self.active.get() == 0 && idle::is_idle() {
                self.built.take();
                return self.is_watched.set(false);
            }
        }
    }
}

impl<M, F, R> Service<R> for LazyService<M, F, R>
where
    M: Fn() -> F + 'static,
    F: ServiceFactory<R, Config = (), Response = ()> + 'static,
    F::InitError: std::fmt::Debug,
    R: 'static,
{
    type Response = ();
    type Error = F::Error;
    type Future = Pin<Box<dyn Future<Output = Result<(), F::Error>>>>;

    fn poll_ready(&self, _: &mut Context<'_>) -> Poll<Result<(), F::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&self, request: R) -> Self::Future {
        let state = Rc::clone(&self.0);
        state.active.set(state.active.get() + 1);
        let active = Active(Rc::clone(&state));
        Box::pin(async move {
            let _active = active;
            match state.service().await {
                Ok(service) => service.call(request).await,
                Err(error) => {
                    tracing::error!(?error, "the HTTP service of a worker could not be built");
                    Ok(())
                }
            }
        })
    }
}
