//! What operators see: health, shutdown, and the documentation as its readers play it.

mod documentation;
mod health;
mod metrics;
mod refusals;
mod shutdown;
