//! Operations that an actor begins and whose results it handles in its own turn: [`then`] for one by itself,
//! [`OrderedOps`] for several whose results must be handled in the order in which they were begun.
//!
//! Both poll an operation once where it begins. A store in memory has the result at once: it costs neither a task nor a
//! turn of the actor.

use std::{
    future::Future,
    pin::Pin,
    task::{Context as TaskContext, Poll, Waker, ready},
};

use actix::{Actor, ActorFuture, ActorFutureExt, AsyncContext, Context, WrapFuture};
use futures_util::{StreamExt, stream::FuturesOrdered};

/// Runs an operation and gives its result to `on_result`: at once if the result is there at the first poll, else when it
/// is, during the other work of the actor.
///
/// The results of two operations may be handled in another order than they were begun. An actor that keeps what the last
/// result said needs [`OrderedOps`]; for others that would let a slow operation hold up the rest.
pub fn then<A, O>(
    mut op: O,
    actor: &mut A,
    ctx: &mut Context<A>,
    on_result: impl FnOnce(&mut A, O::Output, &mut Context<A>) + 'static,
) where
    A: Actor<Context = Context<A>>,
    O: Future + Unpin + 'static,
{
    match poll_once(&mut op) {
        Poll::Ready(result) => on_result(actor, result, ctx),
        Poll::Pending => {
            ctx.spawn(
                op.into_actor(actor)
                    .map(|result, actor, ctx| on_result(actor, result, ctx)),
            );
        }
    }
}

/// Operations of an actor whose results are handled in the order in which they were begun.
pub struct OrderedOps<A: Actor<Context = Context<A>>> {
    /// Results that are awaited, while an [`OrderedOpsDriver`] is at work. With a store in memory there is never one.
    pending: Option<Box<FuturesOrdered<PendingCompletion<A>>>>,
}

type PendingCompletion<A> = Pin<Box<dyn Future<Output = Completion<A>>>>;
/// Handles the result of an operation.
type Completion<A> = Box<dyn FnOnce(&mut A, &mut Context<A>)>;

impl<A: Actor<Context = Context<A>>> Default for OrderedOps<A> {
    fn default() -> Self {
        Self { pending: None }
    }
}

impl<A: Actor<Context = Context<A>>> OrderedOps<A> {
    /// As [`then`], but `on_result` runs at once only if no earlier result is awaited. `field` finds these operations in
    /// their actor.
    pub fn then<O: Future + Unpin + 'static>(
        field: fn(&mut A) -> &mut Self,
        mut op: O,
        actor: &mut A,
        ctx: &mut Context<A>,
        on_result: impl FnOnce(&mut A, O::Output, &mut Context<A>) + 'static,
    ) {
        let polled = poll_once(&mut op);
        let pending = &mut field(actor).pending;
        match polled {
            Poll::Ready(result) if pending.as_ref().is_none_or(|pending| pending.is_empty()) => {
                on_result(actor, result, ctx);
            }
            polled => {
                if pending.is_none() {
                    ctx.spawn(OrderedOpsDriver(field));
                }
                pending.get_or_insert_default().push_back(Box::pin(async move {
                    let result = match polled {
                        Poll::Ready(result) => result,
                        Poll::Pending => op.await,
                    };
                    Box::new(move |actor: &mut A, ctx: &mut Context<A>| on_result(actor, result, ctx)) as Completion<A>
                }));
            }
        }
    }
}

/// Polls an operation where it begins.
pub(crate) fn poll_once<O: Future + Unpin>(op: &mut O) -> Poll<O::Output> {
    Pin::new(op).poll(&mut TaskContext::from_waker(Waker::noop()))
}

/// Handles the results as they come; `.0` finds them in the actor.
struct OrderedOpsDriver<A: Actor<Context = Context<A>>>(fn(&mut A) -> &mut OrderedOps<A>);

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for OrderedOpsDriver<A> {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Self::Output> {
        while let Some(pending) = &mut (self.0)(actor).pending {
            match ready!(pending.poll_next_unpin(task)) {
                Some(complete) => complete(actor, ctx),
                None => (self.0)(actor).pending = None,
            }
        }
        Poll::Ready(())
    }
}
