//! What an outbox keeps after a burst, and what it is charged for.

use actors::model::ProjectId;

use super::*;
use crate::budget::ByteBudget;

const MIB: usize = 1024 * 1024;

#[test]
fn a_burst_leaves_no_buffer() {
    let outbox = Outbox::new(Framing::Line);
    let (mut bytes, mut marks) = (Vec::new(), WriteMarks::default());
    // The outbox and its transport take turns with two buffers.
    for _ in 0..2 {
        bytes.clear();
        outbox.send("0".repeat(10_000));
        outbox.take(&mut bytes, &mut marks);
    }
    assert!(outbox.queue.lock().bytes.capacity() > 10_000);
    outbox.shrink();
    assert_eq!(outbox.queue.lock().bytes.capacity(), 0);
}

#[test]
fn reserved_bytes_are_charged_until_they_wait_or_the_reservation_ends() {
    let budget = ByteBudget::new(8 * MIB, 4 * MIB);
    let [a, b] = [(); 2].map(|()| OutboxCharge::new(Reservation::new(&budget, &ProjectId::default_project())));
    assert!(a.reserve(0, 3 * MIB) && !b.reserve(0, 2 * MIB) && !b.may_have_room(2 * MIB));
    assert!(b.reserve(0, UNRESERVED_BYTES_MAX), "little needs no room");
    a.unreserve(3 * MIB, 3 * MIB);
    assert!(!b.reserve(0, 2 * MIB), "it waits for the socket");
    a.update(0);
    assert!(b.may_have_room(4 * MIB) && b.reserve(0, 4 * MIB));
    assert!(!a.reserve(0, 1), "nothing is pushed while the budget is full");
    b.unreserve(0, 4 * MIB);
    assert!(a.reserve(0, 4 * MIB), "nothing came");
}
