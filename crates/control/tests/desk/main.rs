//! The contract of the desk: every case over both backends, PostgreSQL as a real server of the test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod activations;
mod bench;
mod changes;
mod experiments;
mod files;
mod past;
mod troubles;
#[path = "../common/unsteady.rs"]
mod unsteady;

macro_rules! contract {
    ($($module:ident :: { $($case:ident),* $(,)? })*) => {
        mod embedded {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::$module::$case(crate::bench::Bench::embedded()).await;
                }
            )*)*
        }
        mod postgres {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::$module::$case(crate::bench::Bench::postgres().await).await;
                }
            )*)*
        }
    };
}

contract! {
    experiments::{ an_edit_extends_the_history_or_is_refused, a_file_that_is_read_again_moves_nobody }
    files::{
        a_file_seeds_an_empty_store_once,
        where_the_file_is_the_truth_it_is_asked_for_as_a_whole,
        golden_questions_need_no_file_afterwards,
        a_large_first_content_is_parted_and_can_be_interrupted,
    }
    changes::{
        a_dry_run_says_what_the_real_thing_says,
        what_is_wrong_leaves_nothing,
        a_version_that_is_pinned_is_not_taken_away,
        a_conflict_names_what_changed_and_leaves_nothing,
        options_stay_beside_their_pins,
        many_writers_lose_nothing,
    }
    activations::{
        a_changed_pin_goes_into_force_when_it_is_activated,
        refusals_are_told_apart_and_leave_nothing,
        another_desk_follows,
    }
    past::{ what_was_can_be_read_and_gone_back_to }
    troubles::{
        a_lost_answer_is_found_out,
        what_comes_in_between_is_taken_into_account,
    }
}
