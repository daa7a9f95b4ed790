//! The bounds of questions, and answers that fit and that do not.

use super::*;
use crate::model::{Link, QuestionChoice};

fn choice(value: &str) -> QuestionChoice {
    QuestionChoice {
        value: value.to_owned(),
        label: value.to_owned(),
        description: None,
    }
}

fn with_options() -> QuestionItem {
    QuestionItem {
        options: vec![choice("drop"), choice("keep")],
        ..QuestionItem::text("Drop the old table?")
    }
}

fn single(item: QuestionItem) -> QuestionContent {
    QuestionContent {
        items: vec![item],
        ..QuestionContent::default()
    }
}

fn part(selected: &[&str], other: Option<&str>, text: Option<&str>) -> AnswerPart {
    AnswerPart {
        selected: selected.iter().map(|value| (*value).to_owned()).collect(),
        other: other.map(str::to_owned),
        text: text.map(str::to_owned),
    }
}

fn answer(part: AnswerPart) -> Answer {
    Answer {
        part,
        ..Answer::default()
    }
}

fn field(checked: Result<(), Refusal>) -> String {
    match checked {
        Ok(()) => "fits".to_owned(),
        Err(Refusal::Invalid { field, .. }) => field,
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_fits_its_question_or_names_what_does_not() {
    let strict = QuestionItem {
        allow_other: false,
        ..with_options()
    };
    let many = QuestionItem {
        multi_select: true,
        ..with_options()
    };
    let text = QuestionItem::text("Why?");
    for (item, part, expected) in [
        (with_options(), part(&["drop"], None, Some("dump it first")), "fits"),
        (with_options(), part(&[], Some("rename it"), None), "fits"),
        (with_options(), part(&[], None, Some("ask bob")), "fits"),
        (with_options(), part(&["burn"], None, None), "selected"),
        (with_options(), part(&["drop", "keep"], None, None), "selected"),
        (with_options(), part(&["drop"], Some("rename it"), None), "other"),
        (with_options(), part(&[], None, Some(" \n")), "text"),
        (
            many.clone(),
            part(&["drop", "keep"], Some("and rename it"), None),
            "fits",
        ),
        (many, part(&["drop", "drop"], None, None), "selected"),
        (strict.clone(), part(&[], Some("rename it"), None), "other"),
        (strict.clone(), part(&[], None, Some("hm")), "selected"),
        (strict, part(&["keep"], None, Some("hm")), "fits"),
        (text.clone(), part(&[], None, Some("because")), "fits"),
        (text.clone(), part(&[], Some("because"), None), "other"),
        (text.clone(), part(&["drop"], None, None), "selected"),
        (text, part(&[], None, Some(&"x".repeat(ANSWER_BYTES_MAX + 1))), "text"),
    ] {
        let shown = format!("{part:?}");
        assert_eq!(field(answer(part).check(&single(item))), expected, "{shown}");
    }
}

#[test]
fn an_answer_to_a_form_has_a_part_for_each_required_question() {
    let item = |id: &str, required| QuestionItem {
        id: id.to_owned(),
        required,
        ..with_options()
    };
    let form = QuestionContent {
        items: vec![item("table", true), item("index", false)],
        is_form: true,
        ..QuestionContent::default()
    };
    let answers = |parts: &[(&str, AnswerPart)]| Answer {
        answers: Some(
            parts
                .iter()
                .map(|(id, part)| ((*id).to_owned(), part.clone()))
                .collect(),
        ),
        ..Answer::default()
    };
    let drop = part(&["drop"], None, None);
    for (answer, expected) in [
        (answers(&[("table", drop.clone())]), "fits"),
        (answers(&[("table", drop.clone()), ("index", drop.clone())]), "fits"),
        (answers(&[("index", drop.clone())]), "answers.table"),
        (answers(&[("table", part(&[], None, None))]), "answers.table"),
        (answers(&[("table", drop.clone()), ("view", drop.clone())]), "answers"),
        (
            answers(&[("table", part(&["burn"], None, None))]),
            "answers.table.selected",
        ),
        (answer(drop.clone()), "answers"),
        (Answer::text("all of it"), "answers.table"),
    ] {
        assert_eq!(field(answer.check(&form)), expected, "{answer:?}");
    }
    assert_eq!(
        field(answers(&[("table", drop)]).check(&single(with_options()))),
        "answers"
    );
    let optional = QuestionContent {
        items: vec![item("index", false)],
        ..form
    };
    assert_eq!(field(Answer::default().check(&optional)), "answers");
    assert_eq!(field(Answer::text("neither").check(&optional)), "fits");
}

#[test]
fn images_are_few_small_and_of_known_kinds() {
    let image = |mime: &str, data: &str| Image {
        mime: mime.to_owned(),
        data: data.to_owned(),
    };
    let of = |images: Vec<Image>| Answer {
        images,
        ..Answer::default()
    };
    let content = QuestionContent::text("Which one?");
    let half = "A".repeat(IMAGES_BYTES_MAX / 2);
    for (images, expected) in [
        (vec![image("image/png", "AAAA")], "fits"),
        (vec![image("image/png", &half), image("image/webp", &half)], "fits"),
        (
            vec![
                image("image/png", &half),
                image("image/png", &half),
                image("image/png", "AAAA"),
            ],
            "images",
        ),
        (vec![image("image/png", "AAAA"); IMAGES_LEN_MAX + 1], "images"),
        (vec![image("image/svg+xml", "AAAA")], "images.mime"),
        (vec![image("image/png", "")], "images.data"),
        (vec![image("image/png", "<svg>")], "images.data"),
    ] {
        assert_eq!(field(of(images).check(&content)), expected);
    }
}

#[test]
fn a_question_within_its_bounds_is_accepted() {
    let good = single(with_options());
    assert_eq!(good.check(), Ok(()));
    let item = |change: fn(&mut QuestionItem)| {
        let mut item = with_options();
        change(&mut item);
        field(single(item).check())
    };
    assert_eq!(item(|item| item.question = "x".repeat(8_000)), "fits");
    assert_eq!(item(|item| item.question = "x".repeat(8_001)), "question");
    assert_eq!(item(|item| item.question = " \n".to_owned()), "question");
    assert_eq!(
        item(|item| item.options = (0..21).map(|n| choice(&n.to_string())).collect()),
        "options"
    );
    assert_eq!(item(|item| item.options.push(choice("drop"))), "options.value");
    assert_eq!(
        item(|item| item.options.push(choice(&"x".repeat(121)))),
        "options.value"
    );
    let content = |change: fn(&mut QuestionContent)| {
        let mut content = single(with_options());
        change(&mut content);
        field(content.check())
    };
    let link = |uri: &str| Link {
        title: "plan".to_owned(),
        uri: uri.to_owned(),
    };
    assert_eq!(content(|content| content.items.clear()), "question");
    assert_eq!(content(|content| content.items.push(with_options())), "question");
    assert_eq!(content(|content| content.is_form = true), "questions.id");
    assert_eq!(
        content(|content| content.context = Some("x".repeat(CONTEXT_BYTES_MAX + 1))),
        "context"
    );
    let mut links = good;
    links.links = vec![link("https://example.org/plan")];
    assert_eq!(links.check(), Ok(()));
    links.links = vec![link("javascript:alert(1)")];
    assert_eq!(field(links.check()), "links.uri");
}

#[test]
fn a_summary_is_one_short_line() {
    let summary = |text: &str| QuestionContent::text(text).summary();
    assert_eq!(summary("Drop\n  the\u{1b}[31m old\ttable?"), "Drop the [31m old table?");
    let long = summary(&"word ".repeat(1_000));
    assert_eq!(long.chars().count(), 200);
    assert!(long.ends_with('…'));
    assert_eq!(summary(&"ü".repeat(500)).chars().count(), 200);
}
