//! One question: its text, its options, and how it ended.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use rest::questions::{Answer, FormQuestion, Question};

use super::super::data::{ms, urgency};
use super::super::model::{Entry, Focus, Model};
use super::text::{ago, draw_scrolled, long_age, name, one_line, prose};
use crate::screen::Theme;
use crate::table::cut;

/// The longest label of an option that is shown, in columns.
const LABEL_COLUMNS: usize = 60;

/// Who asks, how urgent, since when and until when.
pub fn title(question: &Question, now_ms: u64) -> String {
    let since = now_ms.saturating_sub(ms(&question.asked_at).unwrap_or(now_ms));
    let mut facts = vec![urgency(question).as_str().to_owned(), long_age(since)];
    match question.expires_at.as_deref().and_then(ms) {
        Some(expires) if question.is_open() && expires > now_ms => {
            facts.push(format!(
                "expires in {}",
                long_age(expires - now_ms).replace("now", "1 min")
            ));
        }
        _ => {}
    }
    if question.to != "desk" && !question.to.is_empty() {
        facts.push(format!("for {}", name(&question.to)));
    }
    let asker = name(question.asker());
    let away = match question.asker.status.as_str() {
        "disconnected" => format!(" · {asker} is away ({})", long_age(question.asker.away_seconds * 1000)),
        _ => String::new(),
    };
    format!("{asker} asks ({}){away}", facts.join(", "))
}

/// How a question ended, in a sentence.
fn ending(question: &Question, now_ms: u64) -> Option<String> {
    if question.is_open() {
        return None;
    }
    let by = question.ended_by().map_or_else(|| "another person".to_owned(), name);
    let what = match question.state.as_str() {
        "answered" => format!("{by} answered"),
        "declined" => format!("{by} declined"),
        "cancelled" => format!("{by} cancelled the question"),
        "expired" => "it expired".to_owned(),
        state => name(state),
    };
    let when = question
        .ended_at()
        .and_then(ms)
        .map(|at| format!(" {}", ago(now_ms.saturating_sub(at))));
    let reason = question.reason().map(|reason| format!(": {}", name(reason)));
    Some(format!(
        "{what}{}{}",
        when.unwrap_or_default(),
        reason.unwrap_or_default()
    ))
}

/// The selected question above its answer. Returns by how many lines its text can be scrolled at most.
pub fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, question: &Question, theme: &Theme) -> usize {
    let width = usize::from(area.width).saturating_sub(2);
    let items = question.items();
    let at = model.work().map_or(0, |work| work.at).min(items.len() - 1);
    let item = &items[at];
    let none = Entry::default();
    let entry = model.work().and_then(|work| work.entries.get(at)).unwrap_or(&none);
    let has_focus = model.focus == Focus::Answer;
    let options = option_lines(item, entry, width, has_focus);
    // The text has three lines at least.
    let height = options.len().min(usize::from(area.height).saturating_sub(3));
    let mut lines = Vec::new();
    if let Some(ending) = ending(question, model.now_ms) {
        let kept = if model.work().is_some_and(|work| work.has_text()) {
            "; your text is kept as a draft"
        } else {
            ""
        };
        lines.push(Line::styled(format!(" {ending}{kept}"), theme.alarm()));
    }
    push_handover(&mut lines, question, theme);
    if items.len() > 1 {
        let needed = if item.required { ", needs an answer" } else { "" };
        let text = format!(" question {} of {}{needed}", at + 1, items.len());
        lines.push(Line::styled(text, theme.label()));
    }
    push_prose(
        &mut lines,
        &item.question,
        width,
        Style::new().add_modifier(Modifier::BOLD),
    );
    push_context(&mut lines, question, width, theme);
    let text = Rect {
        height: area.height - height as u16,
        ..area
    };
    let scroll_max = draw_scrolled(frame, text, lines, model.scroll, theme);
    let below = Rect {
        y: text.bottom(),
        height: height as u16,
        ..area
    };
    // The line with the option of the cursor is shown.
    let first = options.iter().position(|(_, has_cursor)| *has_cursor).unwrap_or(0);
    let first = (first + 1).saturating_sub(height);
    let shown: Vec<Line<'_>> = options
        .into_iter()
        .skip(first)
        .take(height)
        .map(|(line, _)| line)
        .collect();
    frame.render_widget(Paragraph::new(shown), below);
    scroll_max
}

fn push_prose(lines: &mut Vec<Line<'_>>, text: &str, width: usize, style: Style) {
    lines.extend(prose(text, width).map(|line| Line::styled(format!(" {line}"), style)));
}

fn push_handover(lines: &mut Vec<Line<'_>>, question: &Question, theme: &Theme) {
    if let Some(handover) = &question.handover {
        let note = handover.note.as_deref().map(|note| format!(": {}", one_line(note)));
        let text = format!(
            " {} handed it over to {}{}",
            name(&handover.from),
            name(&handover.to),
            note.unwrap_or_default()
        );
        lines.push(Line::styled(text, theme.coloured(Color::Yellow)));
    }
}

fn push_context(lines: &mut Vec<Line<'_>>, question: &Question, width: usize, theme: &Theme) {
    if question.sensitive {
        let text = " the asker wants this answered on the page /desk only";
        lines.push(Line::styled(text, theme.alarm()));
    }
    push_prose(
        lines,
        question.context.as_deref().unwrap_or_default(),
        width,
        Style::new(),
    );
    for link in question.links.iter().flatten() {
        push_prose(lines, &format!("{}: {}", link.title, link.uri), width, theme.label());
    }
    if let Some(images) = question.images.as_ref().filter(|images| !images.is_empty()) {
        let text = format!(" {} images: the page /desk shows them", images.len());
        lines.push(Line::styled(text, theme.label()));
    }
}

/// The options, several on a line, and whether the cursor is on that line.
fn option_lines<'a>(item: &FormQuestion, entry: &Entry, width: usize, has_focus: bool) -> Vec<(Line<'a>, bool)> {
    let mut lines: Vec<(Line<'_>, bool)> = Vec::new();
    let mut used = 0;
    let mut add = |spans: Vec<Span<'a>>, has_cursor: bool| {
        let columns: usize = spans.iter().map(|span| span.width()).sum::<usize>() + 3;
        if lines.is_empty() || used + columns > width {
            lines.push((Line::from(" "), false));
            used = 1;
        }
        used += columns;
        if let Some((line, is_there)) = lines.last_mut() {
            line.spans.extend(spans);
            line.spans.push(Span::raw("   "));
            *is_there |= has_cursor;
        }
    };
    for (at, option) in item.options.iter().enumerate() {
        let has_cursor = has_focus && at == entry.at && entry.editor.is_empty();
        let chosen = if entry.chosen.contains(&at) { "✓" } else { " " };
        let number = at + 1;
        let key = if item.multi_select {
            format!("[{number}]")
        } else {
            format!("({number})")
        };
        let label = cut(&name(&option.label), LABEL_COLUMNS.min(width.saturating_sub(8)));
        let style = if has_cursor {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        let mut spans = vec![Span::styled(format!("{key}{chosen}{label}"), style)];
        if let Some(description) = &option.description {
            let room = width.saturating_sub(key.len() + 1 + label.width() + 5);
            let text = cut(&one_line(description), room);
            let style = Style::new().add_modifier(Modifier::DIM);
            spans.push(Span::styled(format!("  {text}"), style));
        }
        add(spans, has_cursor);
    }
    if item.allow_other && !item.options.is_empty() {
        let chosen = if entry.is_other { "✓" } else { " " };
        add(vec![Span::raw(format!("(o){chosen}other"))], false);
    }
    lines
}

/// A question with its whole text, its options and its end.
pub fn draw_whole(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) -> usize {
    let question = if model.history.is_opened {
        model.history.selected(&model.filter)
    } else {
        model.question()
    };
    let Some(question) = question else { return 0 };
    let width = usize::from(area.width).saturating_sub(2);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut lines = vec![Line::styled(
        format!(" {}", title(question, model.now_ms)),
        theme.label(),
    )];
    push_handover(&mut lines, question, theme);
    for item in question.items() {
        lines.push(Line::default());
        push_prose(&mut lines, &item.question, width, bold);
        for (at, option) in item.options.iter().enumerate() {
            let description = option.description.as_deref().unwrap_or_default();
            push_prose(
                &mut lines,
                &format!("({}) {}  {description}", at + 1, option.label),
                width,
                Style::new(),
            );
        }
    }
    lines.push(Line::default());
    push_context(&mut lines, question, width, theme);
    if let Some(ending) = ending(question, model.now_ms) {
        lines.push(Line::default());
        lines.push(Line::styled(format!(" {ending}"), theme.coloured(Color::Yellow)));
    }
    if let Some(answer) = question.answer() {
        push_answer(&mut lines, answer, width);
    }
    let kept = model.work_for(&question.question_id).filter(|work| work.has_text());
    if let Some(work) = kept {
        lines.push(Line::default());
        lines.push(Line::styled(" your draft:", theme.coloured(Color::Yellow)));
        for entry in &work.entries {
            push_prose(&mut lines, entry.editor.text(), width, Style::new());
        }
    }
    draw_scrolled(frame, area, lines, model.scroll, theme)
}

fn push_answer(lines: &mut Vec<Line<'_>>, answer: &Answer, width: usize) {
    let mut push = |label: &str, selected: &[String], other: Option<&String>, text: Option<&String>| {
        let selected = (!selected.is_empty()).then(|| selected.join(", "));
        for text in [selected.as_ref(), other, text].into_iter().flatten() {
            push_prose(lines, &format!("{label}{text}"), width, Style::new());
        }
    };
    push("", &answer.selected, answer.other.as_ref(), answer.text.as_ref());
    for (id, part) in answer.answers.iter().flatten() {
        push(
            &format!("{id}: "),
            &part.selected,
            part.other.as_ref(),
            part.text.as_ref(),
        );
    }
}
