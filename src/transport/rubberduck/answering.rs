//! Questions and answers as one text each, because the rubberduck programs know nothing else. It does no I/O.

use std::fmt::Write;

use actors::model::{Answer, AnswerPart, QuestionContent, QuestionItem};

/// One question of a form, or the whole question, as a console shows it: the question, and its context.
pub fn shown_text(content: &QuestionContent, at: usize) -> Option<(String, Option<String>)> {
    let item = content.items.get(at)?;
    let mut question = match content.items.len() {
        1 => item.question.clone(),
        len => format!("({} of {len}) {}", at + 1, item.question),
    };
    // Writing to a string cannot fail.
    for (number, option) in (1..).zip(&item.options) {
        let _ = write!(question, "\n  {number}) {}", option.label);
        if let Some(description) = &option.description {
            let _ = write!(question, ": {description}");
        }
    }
    if !item.options.is_empty() {
        let _ = write!(question, "\n({})", how_to_answer(item));
    }
    let mut context = content.context.clone().filter(|_| at == 0).unwrap_or_default();
    if at == 0 {
        for link in &content.links {
            let _ = write!(context, "\n{}: {}", link.title, link.uri);
        }
        if !content.images.is_empty() {
            let _ = write!(context, "\n(images: {}, on the page /desk)", content.images.len());
        }
    }
    let context = context.trim_start_matches('\n');
    Some((question, (!context.is_empty()).then(|| context.to_owned())))
}

/// Reads the answer to one question: the number, the value or the label of an option, several of them with commas between
/// where several may be chosen, or a text.
///
/// # Errors
/// No option fits, and the question takes no other text: what to answer.
pub fn read_part(item: &QuestionItem, text: &str) -> Result<AnswerPart, String> {
    let text = text.trim();
    if item.options.is_empty() {
        return Ok(AnswerPart {
            text: Some(text.to_owned()),
            ..AnswerPart::default()
        });
    }
    let words: Vec<_> = if item.multi_select {
        text.split(',').map(str::trim).collect()
    } else {
        vec![text]
    };
    let chosen: Option<Vec<_>> = words.iter().map(|word| option_of(item, word)).collect();
    match chosen {
        Some(mut selected) => {
            selected.dedup();
            Ok(AnswerPart {
                selected,
                ..AnswerPart::default()
            })
        }
        None if item.allow_other => Ok(AnswerPart {
            other: Some(text.to_owned()),
            ..AnswerPart::default()
        }),
        None => Err(how_to_answer(item)),
    }
}

/// The value of the option that a word names.
fn option_of(item: &QuestionItem, word: &str) -> Option<String> {
    let by_number = word.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let is_named = |name: &str| name.to_lowercase() == word.to_lowercase();
    let named = || {
        let mut options = item.options.iter();
        options.find(|option| is_named(&option.value) || is_named(&option.label))
    };
    let option = by_number.and_then(|at| item.options.get(at)).or_else(named)?;
    Some(option.value.clone())
}

fn how_to_answer(item: &QuestionItem) -> String {
    let last = item.options.len();
    let numbers = if item.multi_select {
        format!("answer with numbers from 1 to {last}, with commas between")
    } else {
        format!("answer with a number from 1 to {last}")
    };
    if item.allow_other {
        format!("{numbers}, or a text")
    } else {
        numbers
    }
}

/// The answer to a question with these parts, one for each of its questions.
pub fn answer_of(content: &QuestionContent, mut parts: Vec<AnswerPart>) -> Answer {
    if !content.is_form {
        return Answer {
            part: parts.pop().unwrap_or_default(),
            ..Answer::default()
        };
    }
    let ids = content.items.iter().map(|item| item.id.clone());
    Answer {
        answers: Some(ids.zip(parts).collect()),
        ..Answer::default()
    }
}

/// The answer as one text, for an asker that asked with one.
pub fn text_of(answer: &Answer) -> String {
    let part = &answer.part;
    let chosen = part.selected.iter().map(String::as_str);
    let texts: Vec<_> = chosen
        .chain(part.other.as_deref())
        .chain(part.text.as_deref())
        .collect();
    match (texts.is_empty(), answer.images.len()) {
        (false, _) => texts.join("\n"),
        (true, images) => format!("(no text; images: {images})"),
    }
}

#[cfg(test)]
mod tests {
    use actors::model::{Link, QuestionChoice};

    use super::*;

    fn item(options: &[&str], multi_select: bool, allow_other: bool) -> QuestionItem {
        let choice = |value: &&str| QuestionChoice {
            value: (*value).to_owned(),
            label: format!("{} it", value.to_uppercase()),
            description: (*value == "drop").then(|| "irreversible".to_owned()),
        };
        QuestionItem {
            id: String::new(),
            question: "Drop the table?".to_owned(),
            options: options.iter().map(choice).collect(),
            multi_select,
            allow_other,
            required: true,
        }
    }

    fn selected(values: &[&str]) -> AnswerPart {
        AnswerPart {
            selected: values.iter().map(|value| (*value).to_owned()).collect(),
            ..AnswerPart::default()
        }
    }

    #[test]
    fn options_are_numbered_and_an_answer_names_one_by_number_value_or_label() {
        let content = QuestionContent {
            items: vec![item(&["drop", "keep"], false, true)],
            context: Some("Migration 42".to_owned()),
            links: vec![Link {
                title: "plan".to_owned(),
                uri: "https://a".to_owned(),
            }],
            ..QuestionContent::default()
        };
        let (question, context) = shown_text(&content, 0).unwrap();
        let lines = [
            "Drop the table?",
            "  1) DROP it: irreversible",
            "  2) KEEP it",
            "(answer with a number from 1 to 2, or a text)",
        ];
        assert_eq!(question, lines.join("\n"));
        assert_eq!(context.as_deref(), Some("Migration 42\nplan: https://a"));
        let item = &content.items[0];
        for text in ["1", " drop ", "Drop IT"] {
            assert_eq!(read_part(item, text), Ok(selected(&["drop"])));
        }
        let other = read_part(item, "3").unwrap();
        assert_eq!((other.other.as_deref(), other.selected.len()), (Some("3"), 0));
    }

    #[test]
    fn several_options_are_read_where_several_may_be_chosen() {
        let several = item(&["a", "b", "c"], true, false);
        assert_eq!(read_part(&several, "1, c"), Ok(selected(&["a", "c"])));
        let why = read_part(&several, "1, x").unwrap_err();
        assert_eq!(why, "answer with numbers from 1 to 3, with commas between");
        assert!(read_part(&item(&["a", "b"], false, false), "1,2").is_err());
    }

    #[test]
    fn a_form_is_shown_question_by_question_and_answered_by_id() {
        let with_id = |id: &str| QuestionItem {
            id: id.to_owned(),
            ..item(&[], false, true)
        };
        let content = QuestionContent {
            items: vec![with_id("first"), with_id("second")],
            is_form: true,
            context: Some("both".to_owned()),
            ..QuestionContent::default()
        };
        assert_eq!(
            shown_text(&content, 0),
            Some(("(1 of 2) Drop the table?".to_owned(), Some("both".to_owned())))
        );
        assert_eq!(
            shown_text(&content, 1),
            Some(("(2 of 2) Drop the table?".to_owned(), None))
        );
        assert_eq!(shown_text(&content, 2), None);
        let parts = ["yes", "no"].map(|text| read_part(&content.items[0], text).unwrap());
        let answers = answer_of(&content, parts.to_vec()).answers.unwrap();
        let texts: Vec<_> = answers
            .iter()
            .map(|(id, part)| (id.as_str(), part.text.as_deref()))
            .collect();
        assert_eq!(texts, [("first", Some("yes")), ("second", Some("no"))]);
    }

    #[test]
    fn an_answer_without_text_is_not_an_empty_text() {
        let text = |text: Option<&str>| Answer {
            part: AnswerPart {
                text: text.map(str::to_owned),
                ..AnswerPart::default()
            },
            ..Answer::default()
        };
        assert_eq!(text_of(&text(Some("two\nlines"))), "two\nlines");
        assert_eq!(text_of(&text(None)), "(no text; images: 0)");
    }
}
