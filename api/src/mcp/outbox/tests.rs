//! What an outbox keeps after a burst.

use super::*;

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
