//! One contract, one suite: what every backend promises, each promise a case.
//!
//! A case opens a project of its own, so that a server that others use too will do, and passes the time as an argument.
//! Cases panic where a promise is broken. Times to live, and the 24 hours of an idempotency key, are in
//! [`TIMED_CASES`]: a backend with a clock of its own cannot take them from `now`.

#![allow(clippy::missing_panics_doc, reason = "a broken promise is a panic")]

mod budgets;
mod dead_letters;
mod delivery;
mod offices;
mod records;
mod seats;
mod timed;
pub(super) mod world;

use std::{future::Future, pin::Pin, sync::Arc};

pub use budgets::small_budgets;

use super::Storage;

/// A name that reads as a promise, and what checks it.
pub type Case = (&'static str, fn(Arc<dyn Storage>) -> Pin<Box<dyn Future<Output = ()>>>);

macro_rules! cases {
    ($($module:ident: $($case:ident)*;)*) => {
        &[$($((stringify!($case), |storage| Box::pin($module::$case(storage)))),*),*]
    };
}

/// What every backend promises.
pub const CASES: &[Case] = cases! {
    delivery:
        messages_of_equal_priority_are_leased_in_the_order_accepted
        a_higher_priority_overtakes_what_waits
        a_full_queue_refuses
        what_is_leased_counts_against_the_capacity
        a_session_that_is_not_known_refuses
        nothing_is_kept_of_a_message_that_everyone_refused
        a_broadcast_reaches_all_but_those_who_refuse
        each_message_of_a_batch_is_accepted_by_itself
        a_message_is_leased_once_until_it_is_released
        a_lease_ends_before_the_first_message_beyond_its_bytes
        a_released_message_keeps_its_place
        released_messages_return_in_their_order_and_count_their_deliveries
        an_acknowledged_message_does_not_come_back
        an_acknowledgement_after_a_release_still_counts
        acknowledging_up_to_a_message_takes_all_leased_before_it
        what_was_not_delivered_cannot_be_acknowledged
        the_acknowledged_who_are_watched_are_named
        a_message_that_is_released_too_often_is_dead
        the_first_result_of_an_idempotency_key_is_repeated
        a_reserved_key_sends_nothing_at_home
        a_key_is_reserved_for_one_project
        a_reservation_is_freed_unless_another_send_has_found_it
        an_idempotency_key_belongs_to_its_sender
        a_refused_send_leaves_its_idempotency_key_free;
    dead_letters:
        the_messages_of_a_removed_session_are_dead_letters
        dead_letters_are_listed_in_pages
        a_list_of_dead_letters_ends_before_the_first_beyond_its_bytes
        dead_letters_are_filtered_by_reason
        a_redriven_message_is_as_new_at_the_tail_of_its_queue
        a_redriven_message_may_go_to_somebody_else
        a_refused_redrive_leaves_the_dead_letter
        a_redrive_gives_nobody_a_second_copy;
    records:
        a_session_is_replaced_by_its_next_record_and_keeps_its_inbox
        a_removed_session_is_forgotten
        a_protocol_version_never_changes
        receipts_tell_where_a_message_stands_for_each_recipient
        an_unknown_message_has_no_receipt
        projects_see_nothing_of_each_other
        a_project_opened_twice_is_the_same;
    offices:
        a_project_that_never_was_is_none
        a_project_begins_with_revision_0_and_goes_on_with_the_next
        a_record_that_is_not_the_next_changes_nothing
        of_two_changes_of_the_same_record_one_is_kept
        a_project_is_kept_with_all_that_it_is
        a_deleted_project_is_still_listed
        a_cleared_project_is_empty_for_whoever_opens_it_next
        clearing_a_project_leaves_the_others_alone
        the_audit_is_told_newest_first
        the_audit_is_filtered_by_everything_that_is_given
        what_belongs_to_no_project_is_in_the_audit_too
        the_audit_is_read_in_pages_without_loss_or_repeat
        what_is_added_while_the_audit_is_read_moves_nothing
        an_entry_that_comes_late_has_its_place_in_the_audit
        a_crossing_is_known_where_it_began
        dead_letters_are_filtered_by_the_project_they_came_from
        a_message_from_another_project_stays_one_when_it_is_redriven;
    seats:
        a_name_belongs_to_one_session
        what_is_gone_cannot_be_resumed
        a_full_project_takes_no_new_session
        the_roster_has_a_new_version_with_each_change
        who_claims_a_session_has_all_that_was_leased
        a_session_that_is_not_known_cannot_be_claimed;
};

/// What a backend promises beside those that several replicas share ([`Store::is_shared`](super::Store::is_shared)).
pub const SHARED_CASES: &[Case] = cases! {
    seats:
        a_broadcast_to_an_old_roster_is_not_sent
        signs_of_life_are_told_to_the_others
        who_was_seen_elsewhere_is_not_taken_for_silent
        who_is_put_has_been_seen
        what_one_replica_appends_another_leases
        what_was_returned_is_acknowledged_anywhere;
};

/// What every backend promises that keeps no more than [`small_budgets`].
pub const BUDGET_CASES: &[Case] = cases! {
    budgets:
        a_queue_is_full_by_its_bytes
        a_message_of_a_batch_has_the_room_that_a_larger_one_had_not
        a_project_is_full_by_the_bytes_of_what_waits
        a_broadcast_counts_once_and_each_recipient_a_little
        the_oldest_dead_letters_make_room
        a_dead_letter_waits_for_room_in_the_queue
        the_oldest_idempotency_keys_make_room
        the_records_of_sessions_have_a_bound
        a_cleared_project_uses_nothing;
};

/// What a backend promises that takes the time from `now`. The idempotency window is the default one.
pub const TIMED_CASES: &[Case] = cases! {
    timed:
        an_expired_message_is_not_delivered_but_dead
        an_expired_message_frees_its_place_in_the_queue
        the_receipt_of_an_expired_message_says_so_at_once
        sweeping_tells_whose_queues_lost_a_message
        what_was_delivered_in_time_can_be_acknowledged_late
        what_is_released_too_late_is_dead
        a_redriven_message_has_its_time_again
        an_idempotency_key_is_free_again_after_its_window
        a_reservation_is_over_a_window_after_it_was_last_found;
};

/// Runs `cases` one after the other, each on what `storage` returns.
pub async fn run(cases: &[Case], storage: impl Fn() -> Arc<dyn Storage>) {
    for (name, case) in cases {
        eprintln!("{name}");
        case(storage()).await;
    }
}
