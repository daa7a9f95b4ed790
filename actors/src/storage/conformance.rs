//! The conformance suite: every promise of the storage contract is a case, and every backend passes the suite.
//!
//! Each case opens a project of its own, so that it can run on a shared server, and passes the time as an argument. A
//! case panics if its promise is broken. Cases about times to live and the idempotency window are in [`TIMED_CASES`],
//! because a backend with its own clock cannot take the time from `now`.

#![allow(clippy::missing_panics_doc, reason = "a broken promise is a panic")]

mod budgets;
mod claims;
mod dead_letters;
mod delivery;
pub(super) mod desk_histories;
mod events;
mod outcomes;
mod question_world;
mod questions;
mod record_store;
mod records;
mod replicated;
mod sessions;
mod system;
mod timed;
pub(super) mod world;
mod yaps;

use std::{future::Future, pin::Pin, sync::Arc};

pub use budgets::small_budgets;

use super::Storage;

/// The name of a promise, and the function that checks it.
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
        a_message_of_higher_priority_overtakes_waiting_ones
        what_waits_is_read_in_its_order_and_stays
        a_full_inbox_refuses_messages
        leased_messages_count_against_the_capacity
        an_unknown_session_refuses_messages
        a_message_refused_by_all_recipients_is_not_stored
        a_broadcast_reaches_every_recipient_that_does_not_refuse
        each_message_of_a_batch_is_accepted_by_itself
        a_message_is_leased_once_until_it_is_released
        a_lease_ends_before_the_first_message_beyond_its_bytes
        a_released_message_keeps_its_place_in_the_queue
        released_messages_return_in_their_order_and_count_their_deliveries
        an_acknowledged_message_is_not_delivered_again
        an_acknowledgement_after_a_release_still_counts
        what_was_not_handed_out_does_not_count_as_delivered
        acknowledging_up_to_a_message_acknowledges_all_leased_before_it
        an_undelivered_message_cannot_be_acknowledged
        what_was_seen_in_another_way_leaves_the_inbox
        an_acknowledgement_reports_tracked_messages
        a_message_released_too_often_is_dead_lettered
        a_repeated_idempotency_key_answers_the_first_result
        a_reserved_key_sends_nothing_in_its_own_project
        a_key_is_reserved_for_one_project
        a_reservation_is_cancelled_unless_another_send_has_found_it
        an_idempotency_key_belongs_to_its_sender
        a_refused_send_leaves_its_idempotency_key_free;
    dead_letters:
        the_messages_of_a_removed_session_become_dead_letters
        a_dead_letter_keeps_the_name_that_its_recipient_had
        dead_letters_are_listed_in_pages
        a_page_of_dead_letters_ends_before_the_first_beyond_its_bytes
        dead_letters_are_filtered_by_reason
        a_redriven_message_is_new_at_the_end_of_its_queue
        a_redriven_message_may_go_to_another_session
        a_refused_redrive_keeps_the_dead_letter
        a_redrive_gives_no_session_a_second_copy
        a_dead_letter_is_given_until_it_is_reported
        a_dead_letter_that_waits_again_is_not_reported
        many_dead_letters_are_given_in_parts;
    outcomes:
        an_outcome_is_kept_with_its_receipt
        each_recipient_of_a_broadcast_has_its_own_outcome
        a_rejected_message_becomes_a_dead_letter
        a_message_that_cannot_be_transformed_becomes_a_dead_letter
        what_lenses_did_at_the_last_delivery_is_kept_with_the_receipt
        each_recipient_of_a_broadcast_has_its_own_form;
    records:
        a_session_with_a_new_record_keeps_its_inbox
        a_removed_session_is_forgotten
        a_protocol_version_never_changes
        a_lens_is_changed_only_by_who_knows_it
        receipts_give_the_status_of_a_message_for_each_recipient
        an_unknown_message_has_no_receipt
        projects_are_isolated_from_each_other
        two_stores_of_a_project_share_its_data;
    system:
        an_unknown_project_has_no_record
        project_revisions_start_at_0_and_are_consecutive
        a_record_with_another_revision_changes_nothing
        one_of_two_concurrent_changes_of_a_record_is_stored
        a_project_record_is_stored_completely
        a_deleted_project_is_still_listed
        a_cleared_project_is_empty_when_it_is_opened_again
        clearing_a_project_leaves_other_projects_unchanged
        the_audit_log_is_listed_newest_first
        the_audit_log_is_filtered_by_all_given_criteria
        the_audit_log_contains_entries_without_a_project
        pages_of_the_audit_log_neither_lose_nor_repeat_entries
        entries_added_while_pages_are_read_do_not_shift_them
        a_late_audit_entry_is_inserted_in_order
        the_sending_project_remembers_the_target_of_a_message
        dead_letters_are_filtered_by_origin
        a_redriven_message_keeps_its_origin;
    sessions:
        a_name_belongs_to_one_session
        an_alias_belongs_to_one_session
        a_removed_session_cannot_be_resumed
        a_full_project_refuses_new_sessions
        the_last_sign_of_life_of_a_session_is_kept
        signs_of_life_are_kept_in_bounded_steps
        the_roster_version_grows_with_each_change
        a_claim_releases_everything_that_is_leased
        an_unknown_session_cannot_be_claimed;
    questions:
        a_question_is_kept_as_it_was_asked
        an_idempotency_key_finds_the_earlier_question
        an_idempotency_key_of_yesterday_asks_again
        open_questions_are_bounded_for_a_session_and_a_project
        a_change_is_stored_only_as_the_next_revision
        of_two_closings_exactly_one_is_stored_and_told
        a_notice_that_is_refused_does_not_keep_a_question_open
        a_notice_comes_only_with_the_end_of_a_question
        a_notice_is_a_message_as_any_other
        each_person_has_one_draft_for_a_question
        the_drafts_of_a_question_are_bounded
        pages_of_questions_neither_lose_nor_repeat_any
        old_closed_questions_are_forgotten
        a_removed_question_is_forgotten
        a_cleared_project_has_no_questions
        the_event_log_has_each_stored_change_of_a_question;
    record_store:
        a_record_is_changed_only_by_who_knows_it
        a_record_is_replaced_and_removed_unseen
        records_are_listed_by_the_beginning_of_their_keys
        the_records_of_a_table_are_bounded;
    claims:
        a_thing_has_one_holder_until_it_is_settled
        the_epochs_of_a_project_grow_and_an_older_one_settles_nothing
        claims_are_listed_by_the_beginning_of_their_things
        a_claim_whose_time_is_over_is_free;
    yaps:
        yaps_are_shown_in_the_order_in_which_they_were_written
        a_yap_is_held_for_the_delay
        a_sender_is_never_overtaken_by_itself
        the_time_of_a_sender_is_taken_only_as_far_as_it_is_credible
        a_yap_that_comes_too_late_is_due_at_once_and_marked
        the_numbers_of_yaps_have_no_gaps
        held_and_shown_yaps_are_bounded
        a_cleared_project_has_no_yaps
        two_stores_of_a_project_share_its_yaps;
};

/// What a backend promises in addition if several replicas share it ([`Store::replicated`](super::Store::replicated)).
pub const SHARED_CASES: &[Case] = cases! {
    replicated:
        a_broadcast_to_an_outdated_roster_is_not_sent
        heartbeats_reach_other_replicas
        a_session_active_at_another_replica_is_not_silent
        putting_a_session_counts_as_a_heartbeat
        one_replica_leases_what_another_appended
        returned_messages_are_acknowledged_at_any_replica;
};

/// What a backend promises that was opened with [`small_budgets`].
pub const BUDGET_CASES: &[Case] = cases! {
    budgets:
        an_inbox_is_full_by_its_bytes
        a_small_message_fits_after_a_larger_one_was_refused
        a_project_is_full_by_the_bytes_of_its_waiting_messages
        a_broadcast_counts_its_envelope_once
        the_oldest_dead_letters_are_dropped_for_new_ones
        a_dead_letter_is_redriven_only_into_free_space
        the_oldest_idempotency_keys_are_forgotten_for_new_ones
        session_records_are_bounded_in_bytes
        a_cleared_project_uses_no_bytes;
    questions:
        questions_are_bounded_in_bytes
        closed_questions_are_bounded_in_number;
    desk_histories:
        questions_and_yaps_are_kept_as_in_memory;
};

/// What a backend promises that takes the time from `now`, with the default idempotency window.
pub const TIMED_CASES: &[Case] = cases! {
    timed:
        an_expired_message_is_dead_lettered_instead_of_delivered
        an_expired_message_frees_its_place_in_the_queue
        a_receipt_shows_the_expiry_at_once
        a_sweep_reports_the_inboxes_that_lost_a_message
        a_message_delivered_in_time_can_be_acknowledged_late
        a_message_released_after_its_deadline_is_dead_lettered
        a_redriven_message_has_a_new_time_to_live
        an_idempotency_key_is_free_after_its_window
        a_reservation_ends_one_window_after_it_was_last_found;
    claims:
        a_claim_lasts_for_its_time_since_it_was_claimed_last;
};

/// What a backend promises that keeps an event log.
pub const EVENT_CASES: &[Case] = cases! {
    events:
        the_life_of_a_message_is_recorded_in_order
        a_broadcast_is_recorded_once_with_its_recipients
        payloads_are_not_recorded_by_default
        a_message_that_is_refused_is_not_recorded
        a_message_from_another_project_is_recorded_with_its_origin
        a_dead_letter_and_its_redrive_are_recorded
        the_end_of_a_session_is_recorded_once
        events_of_actors_are_recorded_as_they_are
        events_are_read_in_both_directions
        events_are_found_by_their_time
        pages_of_events_neither_lose_nor_repeat_any
        the_log_is_followed_from_its_end
        events_of_other_kinds_are_scanned_and_left_out
        a_position_of_another_log_is_a_gap
        a_log_that_was_cleared_does_not_know_its_old_positions
        the_log_of_a_project_is_its_own
        the_texts_of_messages_are_found_until_they_are_acknowledged;
};

/// Runs `cases` one after the other, each on the storage that `storage` returns.
pub async fn run(cases: &[Case], storage: impl Fn() -> Arc<dyn Storage>) {
    for (name, case) in cases {
        eprintln!("{name}");
        case(storage()).await;
    }
}
