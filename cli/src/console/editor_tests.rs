//! What the editor does with a text, and what holds after any keys.

use proptest::prelude::*;

use super::*;

fn with(text: &str) -> Editor {
    let mut editor = Editor::default();
    editor.insert(text);
    editor
}

fn screen(editor: &Editor, width: usize) -> Vec<String> {
    editor.rows(width).into_iter().map(|row| editor.shown(row)).collect()
}

#[test]
fn a_grapheme_is_one_character_to_the_writer() {
    for grapheme in ["e\u{301}", "日", "👨\u{200d}👩\u{200d}👧", "🇩🇪", "क्षि", "\t"] {
        let mut editor = with(&format!("a{grapheme}b"));
        editor.left();
        editor.backspace();
        assert_eq!(editor.text(), "ab", "{grapheme:?}");
    }
    let mut editor = with("e");
    editor.insert("\u{301}");
    editor.backspace();
    assert!(editor.is_empty(), "a combining character joins the one before it");
}

#[test]
fn wide_characters_take_two_columns() {
    let mut editor = with("日本語abc");
    assert_eq!(screen(&editor, 5), ["日本", "語abc"]);
    assert_eq!(editor.position(5), (1, 5));
    editor.up(5);
    assert_eq!(editor.position(5), (0, 2), "not in the middle of a character");
    editor.down(5);
    assert_eq!(editor.position(5), (1, 5), "it keeps its column");
}

#[test]
fn lines_are_wrapped_at_words() {
    let editor = with("but dump it first\nto s3");
    assert_eq!(screen(&editor, 10), ["but dump ", "it first", "to s3"]);
    assert_eq!(screen(&with("abcdefgh"), 4), ["abcd", "efgh"]);
    assert_eq!(screen(&with(""), 4), [""]);
    assert_eq!(screen(&with("a\n"), 4), ["a", ""]);
}

#[test]
fn a_paste_has_lines_and_no_control_characters() {
    let editor = with("one\r\ntwo\rthree\u{1b}[31m\u{0}");
    assert_eq!(editor.text(), "one\ntwo\nthree[31m");
    assert_eq!(screen(&with("\u{202e}abc"), 40), ["\\u{202e}abc"]);
}

#[test]
fn words_and_pastes_are_undone_one_by_one() {
    let mut editor = Editor::default();
    for c in "two words".chars() {
        editor.insert(&c.to_string());
    }
    editor.insert("\na paste");
    editor.undo();
    assert_eq!(editor.text(), "two words");
    editor.undo();
    assert_eq!(editor.text(), "two");
    editor.redo();
    assert_eq!(editor.text(), "two words");
    editor.undo();
    editor.undo();
    assert_eq!(editor.text(), "");
    editor.undo();
    editor.insert("x");
    editor.redo();
    assert_eq!(editor.text(), "x", "a change ends redo");
}

#[test]
fn keys_of_a_shell_work() {
    let mut editor = with("one two\nthree four");
    editor.word_left();
    editor.delete_to_line_end();
    assert_eq!(editor.text(), "one two\nthree ");
    editor.delete_word();
    assert_eq!(editor.text(), "one two\n");
    editor.left();
    editor.home();
    editor.word_right();
    editor.insert("!");
    assert_eq!(editor.text(), "one! two\n");
    editor.delete_to_line_start();
    assert_eq!(editor.text(), " two\n");
    editor.end();
    editor.delete();
    assert_eq!(editor.text(), " two");
}

#[test]
fn a_text_has_a_bound() {
    let mut editor = with(&"日".repeat(TEXT_BYTES_MAX / 3));
    assert!(!editor.insert("日日"), "it says that something is missing");
    assert!(editor.text().len() <= TEXT_BYTES_MAX);
    for _ in 0..1000 {
        editor.insert("\n");
        editor.backspace();
    }
    let kept: usize = editor.undo.iter().map(|earlier| earlier.text.len()).sum();
    assert!(kept <= UNDO_BYTES_MAX, "{kept}");
}

#[derive(Debug, Clone)]
enum Step {
    Insert(String),
    Key(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let characters = prop::sample::select(vec![
        "a",
        " ",
        "\n",
        "é",
        "e\u{301}",
        "\u{301}",
        "日",
        "👨\u{200d}👩",
        "\u{200d}",
        "🇩🇪",
        "\u{202e}",
        "\t",
        "\u{1b}",
        "\r",
        "क्षि",
        "一二三 four",
    ]);
    let step = prop_oneof![
        characters.prop_map(|text| Step::Insert(text.to_owned())),
        "\\PC{0,8}".prop_map(Step::Insert),
        (0_u8..16).prop_map(Step::Key),
    ];
    prop::collection::vec(step, 0..60)
}

fn press(editor: &mut Editor, key: u8, width: usize) {
    match key {
        0 => editor.left(),
        1 => editor.right(),
        2 => drop(editor.up(width)),
        3 => drop(editor.down(width)),
        4 => editor.home(),
        5 => editor.end(),
        6 => editor.word_left(),
        7 => editor.word_right(),
        8 => editor.backspace(),
        9 => editor.delete(),
        10 => editor.delete_word(),
        11 => editor.delete_to_line_start(),
        12 => editor.delete_to_line_end(),
        13 => editor.undo(),
        14 => editor.redo(),
        _ => editor.replace("another text"),
    }
}

proptest! {
    #[test]
    fn the_cursor_stands_between_graphemes_and_the_screen_shows_all(steps in steps(), width in 2_usize..30) {
        let mut editor = Editor::default();
        for step in steps {
            match step {
                Step::Insert(text) => drop(editor.insert(&text)),
                Step::Key(key) => press(&mut editor, key, width),
            }
            prop_assert!(editor.is_boundary(editor.cursor), "{editor:?}");
            let rows = editor.rows(width);
            let (row, column) = editor.position(width);
            prop_assert!(row < rows.len() && column <= width);
            let joined: String = rows.iter().map(|row| &editor.text[row.start..row.end]).collect();
            prop_assert_eq!(joined, editor.text.replace('\n', ""));
            for row in rows {
                let shown = editor.shown(row);
                prop_assert!(!shown.chars().any(|c| c.is_control() || is_direction(c)), "{shown:?}");
                let is_one = editor.text[row.start..row.end].graphemes(true).count() <= 1;
                prop_assert!(is_one || shown.width() <= width, "{shown:?}");
            }
        }
    }

    #[test]
    fn undo_brings_back_every_text_and_redo_the_last(steps in steps()) {
        let mut editor = Editor::default();
        for step in &steps {
            match step {
                Step::Insert(text) => drop(editor.insert(text)),
                Step::Key(key) if !matches!(key, 13 | 14) => press(&mut editor, *key, 20),
                Step::Key(_) => {}
            }
        }
        let last = editor.text.clone();
        let undone = editor.undo.len();
        for _ in 0..undone {
            editor.undo();
        }
        prop_assert_eq!(editor.text(), "");
        for _ in 0..undone {
            editor.redo();
        }
        prop_assert_eq!(editor.text(), last);
    }
}
