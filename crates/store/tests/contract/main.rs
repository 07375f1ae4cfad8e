//! The contract of a store: every case runs against both backends, PostgreSQL as a real server of the test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../support/mod.rs"]
mod support;

mod backups;
mod changes;
mod leading;
mod models;
mod records;

macro_rules! contract {
    ($($module:ident :: { $($case:ident),* $(,)? })*) => {
        mod embedded {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::$module::$case(crate::support::Bench::embedded()).await;
                }
            )*)*
        }
        mod postgres {
            $($(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::$module::$case(crate::support::Bench::postgres().await).await;
                }
            )*)*
        }
    };
}

contract! {
    changes::{
        an_empty_store,
        a_change_is_one_revision_and_survives,
        a_conflict_names_what_changed,
        flips_do_not_stand_in_the_way_of_changes,
        what_is_in_force_is_compared_where_it_is_named,
        of_two_writers_one_wins,
        no_increment_of_many_writers_is_lost,
        a_large_change_is_one_revision,
        the_head_is_followed,
        a_closed_store_says_so,
    }
    models::{ every_revision_reads_as_it_was, both_spaces_page_by_page, what_is_kept_after_a_prune_reads_as_before }
    records::{ a_record_is_compared_and_set, a_change_and_its_records_are_one, records_are_listed_in_pages }
    leading::{ one_leads_and_terms_grow, who_led_before_is_refused }
    backups::{
        a_backup_is_the_same_store_elsewhere,
        a_damaged_backup_changes_nothing,
        a_backup_goes_into_an_empty_store_only,
        a_backup_of_format_1_is_restored_by_every_later_release,
    }
}
