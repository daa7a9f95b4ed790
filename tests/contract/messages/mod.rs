//! Messages from the send to the acknowledgement: envelope, order, delivery, receipts, redelivery.

mod broadcasts;
mod call_receipts;
mod envelope;
mod outcomes;
mod push;
mod receipts;
mod receiving;
mod redelivery;
mod reports;
mod texts;
mod threads;
mod versions;
