//! Tests of the table of settings: sections, sizes and durations.

use std::time::Duration;

use super::{Rule, SETTINGS, Shape, Size, Span, Start, seconds};

#[test]
fn a_section_is_one_run_of_settings() {
    let mut sections: Vec<_> = SETTINGS.iter().map(|setting| setting.section).collect();
    sections.dedup();
    let runs = sections.len();
    sections.sort_unstable();
    sections.dedup();
    assert_eq!(runs, sections.len());
}

#[test]
fn a_size_has_a_unit_or_is_a_number_of_mib() {
    for (text, mib) in [("2048", 2048), ("2048MiB", 2048), ("2GiB", 2048)] {
        let config = Start::new().flag("waiting_max_mb", text).config();
        assert_eq!(config.message_budget_bytes(config.waiting_max_mb), mib << 20, "{text}");
    }
    let sizes = SETTINGS.iter().filter(|setting| setting.shape == Shape::One("SIZE"));
    let mut count = 0;
    for setting in sizes {
        let words = (setting.allowed)();
        let bounds = words.strip_prefix("a size from ").unwrap().split_once(", ").unwrap().0;
        let (least, most) = bounds.split_once(" to ").unwrap();
        let read = |text: &str| Rule::parse(&Size(0..=usize::MAX), text).unwrap();
        assert!(read(least) <= read(setting.default), "{}", setting.key);
        assert!(read(setting.default) < read(most), "{}", setting.key);
        assert!(setting.default.ends_with("MiB"), "{}", setting.key);
        count += 1;
    }
    assert_eq!(
        count,
        SETTINGS.iter().filter(|setting| setting.key.ends_with("_mb")).count() + 1
    );
}

#[test]
fn every_printed_duration_parses_back() {
    for setting in SETTINGS.iter().filter(|setting| setting.shape == Shape::One("TIME")) {
        let words = (setting.allowed)();
        let bounds = words.strip_prefix("a time from ").unwrap().split_once(", ").unwrap().0;
        let (least, most) = bounds.split_once(" to ").unwrap();
        let read = |text: &str| Rule::parse(&Span(seconds(0)..=Duration::MAX), text).unwrap();
        assert!(
            read(least) <= read(setting.default) && read(setting.default) < read(most),
            "{}",
            setting.key
        );
    }
}
